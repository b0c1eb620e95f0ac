// How scores are kept in RAM: the words of the table of games.
#pragma once
#include "console.h"

namespace atari2600 {

EVERYWHERE i32 low(u32 byte) { return (i32)(byte & 15); }
EVERYWHERE i32 high(u32 byte) { return (i32)(byte >> 4); }

// Two decimal digits in each byte, the higher ones first.
EVERYWHERE i32 decimal(u32 byte) { return 10 * high(byte) + low(byte); }
EVERYWHERE i32 decimal(u32 first, u32 second) { return 100 * decimal(first) + decimal(second); }
EVERYWHERE i32 decimal(u32 first, u32 second, u32 third) {
  return 100 * decimal(first, second) + decimal(third);
}

// A digit that is not shown is stored as 10.
EVERYWHERE i32 digit(i32 value) { return value == 10 ? 0 : value; }
// Digits as offsets of their pictures of eight bytes; a blank has an offset of its own.
EVERYWHERE i32 digit_of_8(u32 offset) { return offset == 0x80 ? 0 : (i32)(offset >> 3); }

EVERYWHERE i32 shown_digit(u32 offset) { return offset % 8 || offset > 72 ? 0 : (i32)(offset / 8); }

EVERYWHERE i32 bits(u32 v) { return (i32)((v & 1) + (v >> 1 & 1) + (v >> 2 & 1)); }

// A knockout counts as a hundred points.
EVERYWHERE i32 points_of_boxing(u32 byte) { return byte == 0xc0 ? 100 : decimal(byte); }

// Demon Attack shows its title where the score will be.
EVERYWHERE bool shows_title(const u8 *ram) {
  return ram[0x01] == 0xab && ram[0x03] == 0xcd && ram[0x05] == 0xea;
}

// Tennis: points count within a game of the set; a game that is won counts instead of them.
EVERYWHERE i32 gain_of_tennis(i32 gain) {
  i32 games = (gain + 512) >> 10;
  return games ? games : gain;
}

}  // namespace atari2600
