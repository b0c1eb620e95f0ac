// The frame loop: what is pressed, how a frame begins and ends, and how a game is switched on.
#pragma once
#include "beam.h"
#include "run.h"

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
  frame.instructions = MOST_INSTRUCTIONS;
  if (frame.unfinished) return;
  frame.unfinished = 1;
  frame.page ^= 1;
  frame.recording = (frame.recording + 1) % RECORDINGS;
  frame.first_cycle = console.cpu.cycle - (console.cpu.cycle - frame.first_cycle) % CYCLES_PER_LINE;
  frame.next_row = game.first_line * CLOCKS_PER_LINE;
  frame.rows = 0;
  frame.writes = 0;
  frame.seen = frame.latched = 0;
  frame.last_access = 0;
  console.tia.hmove_clock = -CLOCKS_PER_LINE;  // none on this line
}

// Where the pictures of a console are kept: two screens on which frames are painted in turn, and
// the recordings of the newest frames. The screens may be left out.
struct Film {
  u8 *screens;
  Recording *recordings;
};

// Paint what a page should show.
OUTLINED void paint_page(const Lanes &lanes, Console &console, const Game &game, const Film &film,
                         i32 page) {
  i32 unpainted = console.frame.unpainted[page];
  if (unpainted && film.screens)
    paint_frame(lanes, console.frame, game, film.recordings[unpainted - 1], false,
                film.screens + page * SCREEN);
  lanes.once([&] { console.frame.unpainted[page] = 0; });
}

// Play one frame with an input. It is painted later if at all, unless it is `looked_at` or a short
// one, which leaves rows of the frame before last.
OUTLINED void run_frame(const Lanes &lanes, Console &console, const Game &game, u32 input,
                        const Film &film, bool looked_at) {
  Frame &frame = console.frame;
  lanes.once([&] {
    press(console, game, input);
    begin_frame(console, game);
  });
  Recording &recording = film.recordings[frame.recording];
  for (;;) {
    lanes.once([&] { run_processor(console, game, recording); });
    if (!frame.waiting) break;
    latch_collisions(lanes, frame, game, recording);
  }
  i32 start = CLOCKS_PER_LINE * game.first_line, stop = start + CLOCKS_PER_LINE * HEIGHT;
  bool is_short = recording.seen < stop, paints = looked_at && !is_short && film.screens;
  if (paints && frame.latched <= start) {  // collisions and pixels at once
    paint_frame(lanes, frame, game, recording, true, film.screens + frame.page * SCREEN);
  } else {
    paints = false;
    latch_collisions(lanes, frame, game, recording);
  }
  if (is_short) paint_page(lanes, console, game, film, frame.page);
  lanes.once([&] { frame.unpainted[frame.page] = paints ? 0 : (u8)(1 + frame.recording); });
  if (is_short) paint_page(lanes, console, game, film, frame.page);
}

// Power on. RAM keeps what it holds.
EVERYWHERE void power_on(Console &console, const Game &game, u8 timer) {
  Frame frame = console.frame;
  console.cpu = Processor();
  console.riot = Riot();
  console.tia = Tia();
  console.controls = Controls();
  console.frame = Frame();
  console.frame.page = frame.page;
  console.frame.recording = frame.recording;
  for (i32 page = 0; page < 2; page++) console.frame.unpainted[page] = frame.unpainted[page];
  console.cpu.registers = 0xffu << 8 * S;
  console.cpu.nonzero = 1;
  console.cpu.slices = slices_at_power_on(game.cartridge);
  console.riot.timer = timer;
  console.riot.shift = 6;
  console.controls.resistance = PADDLE_START;
  const u8 *vector = game.rom + place_in_rom(console.cpu.slices, game.cartridge, 0xfffc);
  console.cpu.pc = vector[0] | vector[1] << 8;
}

// Power on and press what starts the game.
OUTLINED void boot(const Lanes &lanes, Console &console, const Game &game, u8 timer,
                   const Film &film) {
  lanes.once([&] { power_on(console, game, timer); });
  for (i32 i = 0; i < BOOT_ENTRIES && game.boot[i].times; i++) {
    const Boot entry = game.boot[i];
    for (i32 frame = 0; frame < entry.times * (entry.frames + entry.pause); frame++) {
      bool pressed = frame % (entry.frames + entry.pause) < entry.frames;
      run_frame(lanes, console, game, pressed ? entry.input : 0, film, false);
    }
  }
}

}  // namespace atari2600
