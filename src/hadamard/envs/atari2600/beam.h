// The beam: what the TIA's registers make of a line. Registers change in the middle of a line, so a
// line is drawn piece by piece, from its recording. Lines do not depend on each other: each of the
// threads of an environment draws its own.
#pragma once
#include "recording.h"

namespace atari2600 {

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

// Draw the pixels from .. to - 1 of a line; returns their collisions, unless all that is possible is
// `known`. Without a row, only collide.
EVERYWHERE u32 draw_pixels(const Tia &tia, u8 *row, i32 from, i32 to, u32 known) {
  if (tia.vblank & 2) {
    if (row) paint_black(row, from, to);
    return 0;
  }
  Objects shape;
  shape.player0 = player_graphics(tia.player0);
  shape.player1 = player_graphics(tia.player1);
  shape.missile0 = missile_shape(tia.missile0, tia.player0);
  shape.missile1 = missile_shape(tia.missile1, tia.player1);
  shape.ball = ball_shape(tia.ball, tia.control);
  shape.playfield = tia.playfield;
  if (!row && !(possible_collisions(shape) & ~known)) return 0;
  u32 right_half = tia.reflected ? reverse_20(tia.playfield) : tia.playfield, hit = 0;
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
    if (row) paint(tia, o, row + first, first, clip);
    if (known != ALL_COLLISIONS) hit |= collisions_of(o);
  }
  return hit;
}

// Draw the clocks from .. to - 1 of one row of the screen as it was recorded; returns collisions.
OUTLINED u32 draw_row(const Recording &recording, const Game &game, i32 row, i32 from, i32 to,
                      u32 known, u8 *pixels) {
  Tia tia = recording.at_start[row];
  i32 row_clock = CLOCKS_PER_LINE * (game.first_line + row), drawn = from;
  u32 write = recording.first_write[row], end = recording.first_write[row + 1], hit = 0;
  for (; drawn < to; write++) {
    u32 word = write < end ? recording.writes[write] : 0;
    i32 clock = recorded_clock(word), until = to;
    u32 reg = recorded_register(word);
    u8 value = recorded_value(word);
    if (write < end) {
      if (!changes_the_line(tia, reg, value, pixels != nullptr)) {
        write_beam(tia, game, reg, value, clock);
        continue;
      }
      until = clock + write_delay(tia, reg, clock) - row_clock;
      if (until > to) until = to;
    }
    if (until > drawn) {
      if (until > BLANK_CLOCKS) {
        i32 left = drawn > BLANK_CLOCKS ? drawn - BLANK_CLOCKS : 0;
        hit |= draw_pixels(tia, pixels, left, until - BLANK_CLOCKS, known | hit);
        if (until >= BLANK_CLOCKS + 8) tia.comb = 0;
      }
      drawn = until;
    }
    write_beam(tia, game, reg, value, clock);
  }
  return hit;
}

// The collisions that are not latched yet of every `step`th row, from the `offset`th one on.
EVERYWHERE u32 pending_collisions(const Frame &frame, const Game &game, const Recording &recording,
                                  i32 offset, i32 step) {
  i32 start = CLOCKS_PER_LINE * game.first_line;
  i32 from = pending_from(frame, game), to = pending_until(frame, game);
  u32 known = frame.collisions, hit = 0;
  if (from >= to || known == ALL_COLLISIONS) return 0;
  i32 first = (from - start) / CLOCKS_PER_LINE, last = (to - 1 - start) / CLOCKS_PER_LINE;
  for (i32 row = first + offset; row <= last; row += step) {
    i32 row_clock = start + CLOCKS_PER_LINE * row;
    i32 left = from > row_clock ? from - row_clock : 0, right = to - row_clock;
    if (right > CLOCKS_PER_LINE) right = CLOCKS_PER_LINE;
    hit |= draw_row(recording, game, row, left, right, known, nullptr);
  }
  return hit;
}

// Latch the collisions of a few lines, by the thread that plays the processor, while the others
// wait; returns false if it would take long.
EVERYWHERE bool latch_few_lines(Frame &frame, const Game &game, Recording &recording) {
  const i32 few = 2 * CLOCKS_PER_LINE;
  if (pending_until(frame, game) - pending_from(frame, game) > few) return false;
  end_recording(frame, recording);
  frame.collisions |= (u16)pending_collisions(frame, game, recording, 0, 1);
  frame.latched = frame.seen;
  return true;
}

// Latch the collisions up to the clock at which the TIA was last accessed.
OUTLINED void latch_collisions(const Lanes &lanes, Frame &frame, const Game &game,
                               const Recording &recording) {
  u32 hit = lanes.any(pending_collisions(frame, game, recording, lanes.lane, LANES));
  lanes.once([&] {
    frame.collisions |= (u16)hit;
    frame.latched = frame.seen;
  });
}

// Paint a frame as far as it came; returns the collisions of this thread's rows that are not known.
EVERYWHERE u32 paint_rows(const Lanes &lanes, const Game &game, const Recording &recording,
                          u32 known, u8 *screen) {
  i32 start = CLOCKS_PER_LINE * game.first_line;
  u32 hit = 0;
  for (i32 row = lanes.lane; row < HEIGHT; row += LANES) {
    i32 end = recording.seen - start - CLOCKS_PER_LINE * row;
    if (end <= 0) break;
    if (end > CLOCKS_PER_LINE) end = CLOCKS_PER_LINE;
    hit |= draw_row(recording, game, row, 0, end, known, screen + row * WIDTH);
  }
  return hit;
}

OUTLINED void paint_frame(const Lanes &lanes, Frame &frame, const Game &game,
                          const Recording &recording, bool collide, u8 *screen) {
  u32 hit = paint_rows(lanes, game, recording, collide ? frame.collisions : ALL_COLLISIONS, screen);
  hit = lanes.any(hit);
  if (collide) {
    lanes.once([&] {
      frame.collisions |= (u16)hit;
      frame.latched = frame.seen;
    });
  } else {
    lanes.sync();
  }
}

}  // namespace atari2600
