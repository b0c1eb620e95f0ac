// The beam: what the TIA's registers make of a line, 32 pixels at a time, as masks in which bit 0
// is the leftmost pixel. Registers change in the middle of a line, so before a change the line is
// drawn up to that clock.
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

// Collision latches: two bits for each of the eight registers, CXM0P to CXPPMM; the lower one is
// read as bit 7, the other as bit 6.
enum Collision {
  M0_P1 = 1 << 0, M0_P0 = 1 << 1,
  M1_P0 = 1 << 2, M1_P1 = 1 << 3,
  P0_PF = 1 << 4, P0_BL = 1 << 5,
  P1_PF = 1 << 6, P1_BL = 1 << 7,
  M0_PF = 1 << 8, M0_BL = 1 << 9,
  M1_PF = 1 << 10, M1_BL = 1 << 11,
  BL_PF = 1 << 12,
  P0_P1 = 1 << 14, M0_M1 = 1 << 15,
  ALL_COLLISIONS = 0xdfff,
};

// The shapes of the objects on the line, and 32 pixels of each.
struct Objects {
  u32 player0, player1, missile0, missile1, ball, playfield;
};

EVERYWHERE u32 possible_collisions(const Objects &shape) {
  u32 possible = ALL_COLLISIONS;
  if (!shape.player0) possible &= ~(M0_P0 | M1_P0 | P0_PF | P0_BL | P0_P1);
  if (!shape.player1) possible &= ~(M0_P1 | M1_P1 | P1_PF | P1_BL | P0_P1);
  if (!shape.missile0) possible &= ~(M0_P0 | M0_P1 | M0_PF | M0_BL | M0_M1);
  if (!shape.missile1) possible &= ~(M1_P0 | M1_P1 | M1_PF | M1_BL | M0_M1);
  if (!shape.ball) possible &= ~(P0_BL | P1_BL | M0_BL | M1_BL | BL_PF);
  if (!shape.playfield) possible &= ~(P0_PF | P1_PF | M0_PF | M1_PF | BL_PF);
  return possible;
}

EVERYWHERE u32 collisions_of(const Objects &o) {
  u32 hit = 0;
  if (o.missile0) {
    if (o.missile0 & o.player1) hit |= M0_P1;
    if (o.missile0 & o.player0) hit |= M0_P0;
    if (o.missile0 & o.playfield) hit |= M0_PF;
    if (o.missile0 & o.ball) hit |= M0_BL;
    if (o.missile0 & o.missile1) hit |= M0_M1;
  }
  if (o.missile1) {
    if (o.missile1 & o.player0) hit |= M1_P0;
    if (o.missile1 & o.player1) hit |= M1_P1;
    if (o.missile1 & o.playfield) hit |= M1_PF;
    if (o.missile1 & o.ball) hit |= M1_BL;
  }
  if (o.player0) {
    if (o.player0 & o.playfield) hit |= P0_PF;
    if (o.player0 & o.ball) hit |= P0_BL;
    if (o.player0 & o.player1) hit |= P0_P1;
  }
  if (o.player1) {
    if (o.player1 & o.playfield) hit |= P1_PF;
    if (o.player1 & o.ball) hit |= P1_BL;
  }
  if (o.ball & o.playfield) hit |= BL_PF;
  return hit;
}

// Bytes 0xff where the four lowest bits are set.
EVERYWHERE u32 bytes_of_bits(u32 bits) {
  return ((bits & 15) * 0x00204081u & 0x01010101u) * 0xffu;
}

// Write the pixels of `clip`; `row` is where pixel `first` of the line is.
EVERYWHERE void paint(const Tia &tia, const Objects &o, u8 *row, i32 first, u32 clip) {
  u32 color0 = o.player0 | o.missile0, color1 = o.player1 | o.missile1, field;
  if (tia.control & 4) {  // playfield and ball before the players
    field = o.playfield | o.ball;
    color0 &= ~field;
    color1 &= ~(field | color0);
  } else if (tia.control & 2) {  // score: the halves of the playfield in the players' colors
    u32 left = first < 64 ? 0xffffffffu : first == 64 ? 0xffffu : 0u;
    color0 |= o.playfield & left;
    color1 = (color1 | (o.playfield & ~left)) & ~color0;
    field = o.ball & ~(color0 | color1);
  } else {
    color1 &= ~color0;
    field = (o.playfield | o.ball) & ~(color0 | color1);
  }
  u32 player0 = tia.color_player0 * 0x01010101u, player1 = tia.color_player1 * 0x01010101u;
  u32 playfield = tia.color_playfield * 0x01010101u, background = tia.color_background * 0x01010101u;
  for (i32 x = 0; x < 32; x += 4) {
    u32 written = bytes_of_bits(clip >> x);
    if (!written) continue;
    u32 in0 = bytes_of_bits(color0 >> x), in1 = bytes_of_bits(color1 >> x);
    u32 in_field = bytes_of_bits(field >> x);
    u32 pixels = (player0 & in0) | (player1 & in1) | (playfield & in_field) |
                 (background & ~(in0 | in1 | in_field));
    if (tia.comb && first + x < 8) pixels = 0;
    u32 *target = (u32 *)(row + x);
    *target = written == 0xffffffffu ? pixels : (pixels & written) | (*target & ~written);
  }
}

EVERYWHERE void paint_black(u8 *row, i32 from, i32 to) {
  for (; from < to && from & 3; from++) row[from] = 0;
  for (; from + 4 <= to; from += 4) *(u32 *)(row + from) = 0;
  for (; from < to; from++) row[from] = 0;
}

// Draw the pixels from .. to - 1 of a line and latch their collisions; without a row, only latch.
EVERYWHERE void draw_pixels(Tia &tia, u8 *row, i32 from, i32 to) {
  if (tia.vblank & 2) {
    if (row) paint_black(row, from, to);
    return;
  }
  Objects shape;
  shape.player0 = player_graphics(tia.player0);
  shape.player1 = player_graphics(tia.player1);
  shape.missile0 = missile_shape(tia.missile0, tia.player0);
  shape.missile1 = missile_shape(tia.missile1, tia.player1);
  shape.ball = ball_shape(tia.ball, tia.control);
  shape.playfield = tia.playfield;
  if (!row && !(possible_collisions(shape) & ~tia.collisions)) return;
  u32 right_half = tia.reflected ? reverse_20(tia.playfield) : tia.playfield;
  u64 playfield = (u64)tia.playfield | (u64)right_half << 20;
  for (i32 first = from & ~31; first < to; first += 32) {
    u32 clip = 0xffffffffu;
    if (from > first) clip &= ~0u << (from - first);
    if (to < first + 32) clip &= ~(~0u << (to - first));
    Objects o;
    o.playfield = quadruple_bits((u32)(playfield >> first / 4) & 0xff) & clip;
    o.player0 = shape.player0 ? place_player(tia.player0, shape.player0, first) & clip : 0;
    o.player1 = shape.player1 ? place_player(tia.player1, shape.player1, first) & clip : 0;
    o.missile0 = o.missile1 = 0;
    if (shape.missile0)
      o.missile0 = clip & place_copies(shape.missile0, tia.missile0.position,
                                       copies(tia.player0.number_size), first);
    if (shape.missile1)
      o.missile1 = clip & place_copies(shape.missile1, tia.missile1.position,
                                       copies(tia.player1.number_size), first);
    o.ball = shape.ball ? place(shape.ball, tia.ball.position, first) & clip : 0;
    tia.collisions |= (u16)collisions_of(o);
    if (row) paint(tia, o, row + first, first, clip);
  }
}

// Draw up to a clock of the frame. Rows outside the screen are not drawn and nothing collides there.
EVERYWHERE void catch_up(Tia &tia, const Game &game, u8 *screen, i32 clock) {
  i32 start = game.first_line * CLOCKS_PER_LINE, stop = start + HEIGHT * CLOCKS_PER_LINE;
  if (clock > stop) clock = stop;
  if (clock <= tia.drawn) return;
  i32 line = tia.drawn / CLOCKS_PER_LINE, from = tia.drawn - line * CLOCKS_PER_LINE;
  while (tia.drawn < clock) {
    i32 to = from + clock - tia.drawn;
    if (to > CLOCKS_PER_LINE) to = CLOCKS_PER_LINE;
    if (to > BLANK_CLOCKS) {
      i32 left = from > BLANK_CLOCKS ? from - BLANK_CLOCKS : 0;
      u8 *row = screen ? screen + (line - game.first_line) * WIDTH : (u8 *)0;
      draw_pixels(tia, row, left, to - BLANK_CLOCKS);
      if (to >= BLANK_CLOCKS + 8) tia.comb = 0;
    }
    tia.drawn += to - from;
    from = to;
    if (from == CLOCKS_PER_LINE) {
      from = 0;
      line++;
      tia.reflected = tia.control & 1;
      tia.player0.first_hidden = tia.player1.first_hidden = 0;
    }
  }
}

}  // namespace atari2600
