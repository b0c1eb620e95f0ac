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

EVERYWHERE i32 bits(u32 v) { return (i32)((v & 1) + (v >> 1 & 1) + (v >> 2 & 1)); }

// A knockout counts as a hundred points.
EVERYWHERE i32 points_of_boxing(u32 byte) { return byte == 0xc0 ? 100 : decimal(byte); }

// Six installations and a gun, each gone when bit 7 of its byte is set.
EVERYWHERE i32 lives_of_atlantis(const u8 *ram) {
  i32 lives = 6;
  for (i32 i = 0x54; i <= 0x5a; i++) lives -= ram[i] >> 7;
  return lives;
}

}  // namespace atari2600
