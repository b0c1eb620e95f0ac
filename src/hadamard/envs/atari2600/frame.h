// The frame loop: what is pressed, how a frame begins and ends, and how a game is switched on.
#pragma once
#include "processor.h"

namespace atari2600 {

enum {
  MOST_INSTRUCTIONS = 25000,  // of a frame; ALE stops there, and the frame goes on afterwards
  PADDLE_MIN = 27450,         // ALE's resistances, and how far they turn in a frame
  PADDLE_MAX = 790196,
  PADDLE_STEP = 23000,
  PADDLE_START = PADDLE_MIN + (PADDLE_MAX - PADDLE_MIN) / 2,
};

// Cycles until a capacitor of 10 nF is charged through a resistance: 1.6 R C at 1.19 MHz.
EVERYWHERE i32 charging_cycles(i32 resistance) {
  return (i32)(1.6 * resistance * 0.01e-6 * 1.19e6);
}

EVERYWHERE void press(Console &console, const Game &game, u32 input) {
  Controls &controls = console.controls;
  u8 released = 0x80;
  controls.switches = 0x3f;  // color, both difficulties B
  if (input & RESET) controls.switches &= ~1;
  if (input & SELECT) controls.switches &= ~2;
  controls.trigger_0 = controls.trigger_1 = released;
  controls.port_a = 0xff;
  switch (game.controller) {
    case JOYSTICK_LEFT:
      controls.port_a = (u8)(0xff ^ (input & 15) << 4);
      if (input & FIRE) controls.trigger_0 = 0;
      break;
    case JOYSTICK_RIGHT:
      controls.port_a = (u8)(0xff ^ (input & 15));
      if (input & FIRE) controls.trigger_1 = 0;
      break;
    default: {
      if (input & LEFT) controls.resistance += PADDLE_STEP;
      if (input & RIGHT) controls.resistance -= PADDLE_STEP;
      if (controls.resistance < PADDLE_MIN) controls.resistance = PADDLE_MIN;
      if (controls.resistance > PADDLE_MAX) controls.resistance = PADDLE_MAX;
      bool second = game.controller == PADDLE_1;
      if (input & FIRE) controls.port_a = second ? 0xbf : 0x7f;
      i32 agent = charging_cycles(controls.resistance), other = charging_cycles(PADDLE_START);
      controls.charge_0 = second ? other : agent;
      controls.charge_1 = second ? agent : other;
      controls.charge_others = ALWAYS;
      return;
    }
  }
  controls.charge_0 = controls.charge_1 = controls.charge_others = NEVER;
}

EVERYWHERE void begin_frame(Console &console, const Game &game) {
  Frame &frame = console.frame;
  frame.done = 0;
  if (frame.unfinished) return;
  frame.unfinished = 1;
  frame.page ^= 1;
  frame.first_cycle = console.cpu.cycle - (console.cpu.cycle - frame.first_cycle) % CYCLES_PER_LINE;
  console.tia.drawn = game.first_line * CLOCKS_PER_LINE;
  console.tia.hmove_clock = -CLOCKS_PER_LINE;  // none on this line
}

// Play one frame with an input. `screens`: two screens on which frames are drawn in turn (a short
// frame leaves rows of the frame before last), or none.
OUTLINED void run_frame(Console &console, const Game &game, u32 input, u8 *screens) {
  press(console, game, input);
  begin_frame(console, game);
  u8 *screen = screens ? screens + console.frame.page * SCREEN : (u8 *)0;
  for (i32 left = MOST_INSTRUCTIONS; left > 0 && !console.frame.done; left--)
    step_processor(console, game, screen);
}

// Power on. RAM keeps what it holds.
EVERYWHERE void power_on(Console &console, const Game &game, u8 timer) {
  u8 page = console.frame.page;
  console.cpu = Processor();
  console.riot = Riot();
  console.tia = Tia();
  console.controls = Controls();
  console.frame = Frame();
  console.frame.page = page;
  console.cpu.s = 0xff;
  console.cpu.nonzero = 1;
  console.slices = slices_at_power_on(game.cartridge);
  console.riot.timer = timer;
  console.riot.shift = 6;
  console.controls.resistance = PADDLE_START;
  u32 low = cartridge_byte(console, game, 0xfffc);
  console.cpu.pc = (u16)(low | cartridge_byte(console, game, 0xfffd) << 8);
}

// Power on and press what starts the game.
OUTLINED void boot(Console &console, const Game &game, u8 timer, u8 *screens) {
  power_on(console, game, timer);
  for (i32 i = 0; i < BOOT_ENTRIES && game.boot[i].frames; i++)
    for (i32 frame = 0; frame < game.boot[i].frames; frame++)
      run_frame(console, game, game.boot[i].input, screens);
}

}  // namespace atari2600
