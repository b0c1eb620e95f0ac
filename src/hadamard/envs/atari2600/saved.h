// Saved games come from files, which may be damaged or made to do harm. Every value that is used as
// an index, a length or a shift without being masked or set anew is checked here, before a loaded
// game is played. There are no pointers in a saved game. Not checked, since any value is harmless:
//
// - bytes of RAM, registers and program counter, which are masked where they address memory;
// - the cycle and what is compared with it, which wrap around;
// - the TIA's registers and places, as a console has them and at the start of each recorded row:
//   what is drawn of them is clipped to 160 pixels;
// - recorded writes: 18 bits of clock, 6 of register, 8 of value;
// - seed, draws and power-ons: the random numbers are hashed, the table of timers ends with its last;
// - pixels and stacks of frames, which are bytes.
#pragma once
#include "agent.h"

namespace atari2600 {

enum { MOST_COUNTED = 1 << 30 };  // points, frames, steps: no sum of them overflows

EVERYWHERE bool is_within(i32 value, i32 least, i32 most) { return least <= value && value <= most; }

// Whether a cartridge can show these slices: then all addresses are within its ROM.
EVERYWHERE bool are_of_cartridge(u32 slices, i32 cartridge) {
  switch (cartridge) {
    case CART_F8: return slices == bank_of_4k(0) || slices == bank_of_4k(1);
    case CART_F6: return (slices & 0xff) <= 12 && slices == bank_of_4k((slices & 0xff) / 4);
    case CART_E0: return slices >> 24 == 7 && !(slices & 0x00f8f8f8u);
    default: return slices == slices_at_power_on(cartridge);
  }
}

EVERYWHERE bool is_sound(const Frame &frame, const Game &game) {
  if (frame.page > 1 || frame.recording >= RECORDINGS) return false;
  if (frame.unpainted[0] > RECORDINGS || frame.unpainted[1] > RECORDINGS) return false;
  if (!is_within(frame.rows, 0, HEIGHT) || frame.writes > MOST_WRITES || frame.seen < 0) return false;
  if (!frame.unfinished) return true;  // the next frame sets the rest
  if (frame.next_row == NO_MORE_ROWS) return frame.rows == HEIGHT;
  return frame.next_row == CLOCKS_PER_LINE * (game.first_line + frame.rows);
}

EVERYWHERE bool is_sound(const Console &console, const Game &game) {
  return are_of_cartridge(console.cpu.slices, game.cartridge) && console.cpu.carry <= 1 &&
         console.riot.shift <= 10 &&
         is_within(console.controls.resistance, PADDLE_MIN, PADDLE_MAX) &&
         is_sound(console.frame, game);
}

EVERYWHERE bool is_sound(const Recording &recording) {
  for (i32 row = 0; row <= HEIGHT; row++)
    if (recording.first_write[row] > MOST_WRITES) return false;
  return recording.seen >= 0;
}

// Whether a saved environment can be played; `recordings` are its own.
EVERYWHERE bool is_sound(const Environment &env, const Recording *recordings, const Game &game) {
  for (i32 i = 0; i < RECORDINGS; i++)
    if (!is_sound(recordings[i])) return false;
  return is_sound(env.console, game) && is_within(env.score, -MOST_COUNTED, MOST_COUNTED) &&
         is_within(env.last_score, -MOST_COUNTED, MOST_COUNTED) &&
         is_within(env.frames, 0, MOST_COUNTED) && is_within(env.length, 0, MOST_COUNTED);
}

}  // namespace atari2600
