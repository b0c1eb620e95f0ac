// The recording of a frame: what was written to the TIA, and its state at the start of each row of
// the screen. The processor runs ahead; the beam is drawn from the recording when a picture or the
// collisions are needed, and not at all when neither is.
#pragma once
#include "tia.h"

namespace atari2600 {

enum {
  MOST_WRITES = HEIGHT * 26,  // an instruction that stores takes three cycles or more
  RECORDINGS = 3,             // of the newest frames
  NO_MORE_ROWS = 0x7fffffff,
};

struct Recording {
  Tia at_start[HEIGHT];
  u32 writes[MOST_WRITES];
  u32 first_write[HEIGHT + 1];  // of each row
  i32 seen;                     // the frame is known up to this clock
};

EVERYWHERE u32 record_of(i32 clock, u32 reg, u8 value) { return (u32)clock << 14 | reg << 8 | value; }
EVERYWHERE i32 recorded_clock(u32 word) { return (i32)(word >> 14); }
EVERYWHERE u32 recorded_register(u32 word) { return word >> 8 & 63; }
EVERYWHERE u8 recorded_value(u32 word) { return (u8)word; }

// Registers that are not on the screen: VSYNC, WSYNC, RSYNC, sound, CXCLR and beyond.
EVERYWHERE bool is_on_screen(u32 reg) {
  const u64 others = 1ull << VSYNC | 1ull << WSYNC | 1ull << RSYNC | 0x3full << (RESBL + 1);
  return reg < CXCLR && !(others >> reg & 1);
}

// The beam comes to a clock of the frame: rows end and begin.
OUTLINED void begin_rows(Frame &frame, Tia &tia, Recording &recording, i32 clock) {
  while (clock >= frame.next_row && frame.next_row != NO_MORE_ROWS) {
    if (frame.rows > 0) {
      tia.reflected = tia.control & 1;
      tia.player0.first_hidden = tia.player1.first_hidden = 0;
      tia.comb = 0;
    }
    recording.first_write[frame.rows] = frame.writes;
    if (frame.rows == HEIGHT) {
      frame.next_row = NO_MORE_ROWS;
    } else {
      recording.at_start[frame.rows] = tia;
      frame.rows++;
      frame.next_row += CLOCKS_PER_LINE;
    }
  }
}

EVERYWHERE void reach(Frame &frame, Tia &tia, Recording &recording, i32 clock) {
  if (RARELY(clock >= frame.next_row)) begin_rows(frame, tia, recording, clock);
  if (clock > frame.seen) frame.seen = clock;
}

// Collisions count on the rows of the screen. These are the clocks that are not latched yet.
EVERYWHERE i32 pending_from(const Frame &frame, const Game &game) {
  i32 start = CLOCKS_PER_LINE * game.first_line;
  return frame.latched > start ? frame.latched : start;
}
EVERYWHERE i32 pending_until(const Frame &frame, const Game &game) {
  i32 stop = CLOCKS_PER_LINE * (game.first_line + HEIGHT);
  return frame.seen < stop ? frame.seen : stop;
}
EVERYWHERE bool has_pending_collisions(const Frame &frame, const Game &game) {
  return pending_from(frame, game) < pending_until(frame, game);
}

EVERYWHERE void write_recorded(Console &console, const Game &game, Recording &recording, u32 reg,
                               u8 value, i32 clock) {
  Frame &frame = console.frame;
  Tia &tia = console.tia;
  frame.last_access = record_of(clock, reg, value);
  if (reg == WSYNC) return;
  reach(frame, tia, recording, clock);
  // A player's strobe may show only after the end of the row.
  if (RARELY(reg == RESP0 || reg == RESP1))
    reach(frame, tia, recording, clock + write_delay(tia, reg, clock));
  if (reg == CXCLR) {
    frame.collisions = 0;
    frame.latched = frame.seen;
  }
  if (!is_on_screen(reg)) return;
  // There is always room for those of a game that was not made to fill it.
  if (frame.rows > 0 && frame.next_row != NO_MORE_ROWS && USUALLY(frame.writes < MOST_WRITES))
    recording.writes[frame.writes++] = record_of(clock, reg, value);
  write_beam(tia, game, reg, value, clock);
}

// ALE stops within a frame. It has drawn up to where the last access of the TIA shows.
EVERYWHERE void stop_within_frame(Console &console, Recording &recording) {
  i32 clock = recorded_clock(console.frame.last_access);
  u32 reg = recorded_register(console.frame.last_access);
  if (reg != RESP0 && reg != RESP1) clock += write_delay(console.tia, reg, clock);
  reach(console.frame, console.tia, recording, clock);
}

// After the last write: where the writes of the last row end, and how far the frame is known.
EVERYWHERE void end_recording(const Frame &frame, Recording &recording) {
  recording.first_write[frame.rows] = frame.writes;
  recording.seen = frame.seen;
}

}  // namespace atari2600
