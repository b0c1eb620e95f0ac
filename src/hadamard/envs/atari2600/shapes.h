// The shapes of the TIA's objects, 32 pixels of a line at a time, as masks in which bit 0 is the
// leftmost pixel.
#pragma once
#include "console.h"

namespace atari2600 {

EVERYWHERE u32 reverse_8(u32 v) {
  v = (v & 0x55) << 1 | (v >> 1 & 0x55);
  v = (v & 0x33) << 2 | (v >> 2 & 0x33);
  return (v & 0x0f) << 4 | v >> 4;
}

EVERYWHERE u32 reverse_20(u32 v) {
  return reverse_8(v & 0xff) << 12 | reverse_8(v >> 8 & 0xff) << 4 | reverse_8(v >> 16) >> 4;
}

// Every bit twice, and four times.
EVERYWHERE u32 double_bits(u32 v) {
  v = (v | v << 4) & 0x0f0f;
  v = (v | v << 2) & 0x3333;
  v = (v | v << 1) & 0x5555;
  return v * 3;
}

EVERYWHERE u32 quadruple_bits(u32 v) {
  v = (v | v << 12) & 0x000f000f;
  v = (v | v << 6) & 0x03030303;
  v = (v | v << 3) & 0x11111111;
  return v * 15;
}

// NUSIZ: bit k is set where there is a copy 16 * k pixels to the right.
EVERYWHERE u32 copies(u32 number_size) {
  switch (number_size & 7) {
    case 1: return 0x03;  // two, close
    case 2: return 0x05;  // two, medium
    case 3: return 0x07;  // three, close
    case 4: return 0x11;  // two, wide
    case 6: return 0x15;  // three, medium
    default: return 0x01;
  }
}

// The pixels first .. first + 31 of a shape at a position; lines wrap round.
EVERYWHERE u32 shift_shape(u32 shape, i32 by) {
  if (by <= -32 || by >= 32) return 0;
  return by >= 0 ? shape << by : shape >> -by;
}

EVERYWHERE u32 place(u32 shape, i32 position, i32 first) {
  if (position >= WIDTH) position -= WIDTH;
  u32 mask = shift_shape(shape, position - first);
  if (first == 0 && position > WIDTH - 32) mask |= shift_shape(shape, position - WIDTH);
  return mask;
}

EVERYWHERE u32 place_copies(u32 shape, i32 position, u32 which, i32 first) {
  u32 mask = 0;
  if (which & 0x01) mask = place(shape, position, first);
  if (which & 0x02) mask |= place(shape, position + 16, first);
  if (which & 0x04) mask |= place(shape, position + 32, first);
  if (which & 0x10) mask |= place(shape, position + 64, first);
  return mask;
}

EVERYWHERE u32 player_graphics(const Player &player) {
  u32 graphics = player.delayed ? player.old_graphics : player.graphics;
  return player.reflected ? graphics : reverse_8(graphics);  // bit 7 is the leftmost pixel
}

EVERYWHERE u32 place_player(const Player &player, u32 graphics, i32 first) {
  u32 size = player.number_size & 7;
  i32 position = player.position;
  if (size == 5) graphics = double_bits(graphics);
  if (size == 7) graphics = quadruple_bits(graphics);
  if (size == 5 || size == 7) position += 1;
  u32 which = copies(size);
  if (player.first_hidden) which &= ~1u;
  return place_copies(graphics, position, which, first);
}

// 1, 2, 4 or 8 pixels.
EVERYWHERE u32 bar(u32 width) { return (1u << (1u << (width & 3))) - 1; }

EVERYWHERE u32 missile_shape(const Missile &missile, const Player &player) {
  return missile.enabled && !missile.locked ? bar(player.number_size >> 4) : 0;
}

EVERYWHERE u32 ball_shape(const Ball &ball, u32 control) {
  return (ball.delayed ? ball.old_enabled : ball.enabled) ? bar(control >> 4) : 0;
}

}  // namespace atari2600
