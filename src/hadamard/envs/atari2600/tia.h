// The TIA's registers: what writes and reads of them do. What they make of a line is in beam.h.
#pragma once
#include "shapes.h"

namespace atari2600 {

enum WriteRegister {
  VSYNC = 0x00, VBLANK, WSYNC, RSYNC, NUSIZ0, NUSIZ1, COLUP0, COLUP1,
  COLUPF, COLUBK, CTRLPF, REFP0, REFP1, PF0, PF1, PF2,
  RESP0, RESP1, RESM0, RESM1, RESBL,
  GRP0 = 0x1b, GRP1, ENAM0, ENAM1, ENABL,
  HMP0, HMP1, HMM0, HMM1, HMBL, VDELP0, VDELP1, VDELBL, RESMP0, RESMP1,
  HMOVE, HMCLR, CXCLR,
};

// The place of a clock of the frame in its line.
EVERYWHERE i32 line_cycle(i32 clock) { return (i32)((u32)clock / CLOCKS_PER_CYCLE % CYCLES_PER_LINE); }

// ------------------------------------------------------------------ horizontal positions

// A strobe resets an object's counter, and the object appears `latency` clocks later. The counter
// stands still while the line is blanked.
EVERYWHERE i32 strobed_position(i32 clock, i32 latency) {
  i32 h = CLOCKS_PER_CYCLE * line_cycle(clock);
  return h < BLANK_CLOCKS ? latency - 2 : (h - BLANK_CLOCKS + latency) % WIDTH;
}

// HMOVE sends up to 15 pulses, one every four clocks, to objects whose motion asks for them; a
// motion of n asks for n ^ 8. The late end of the blank costs each object eight clocks. A pulse in
// the visible part of the line falls on a counter that runs anyway and does nothing.
EVERYWHERE i32 hmove_distance(i32 cycle, u32 motion) {
  i32 pulses = (i32)(motion ^ 8), clock = CLOCKS_PER_CYCLE * cycle;
  if (cycle <= 20) {
    i32 before_the_line = (70 - clock) >> 2;
    return 8 - (pulses < before_the_line ? pulses : before_the_line);
  }
  if (cycle >= 75) return 8 - pulses;  // at the line's end all of them fall into the next blank
  i32 lost = (222 - clock) >> 2;
  return pulses > lost ? lost - pulses : 0;
}

EVERYWHERE u8 moved(u8 position, i32 distance) {
  i32 moved = position + distance;
  if (moved < 0) moved += WIDTH;
  if (moved >= WIDTH) moved -= WIDTH;
  return (u8)moved;
}

// How far right of a copy of the player a pixel is, for the nearest copy on its left.
EVERYWHERE i32 distance_from_copy(const Player &player, i32 position) {
  i32 nearest = WIDTH;
  u32 which = copies(player.number_size);
  for (i32 copy = 0; copy < 5; copy++) {
    i32 distance = position - player.position - 16 * copy;
    if (distance < 0) distance += WIDTH;
    if (distance < 0) distance += WIDTH;
    if (which >> copy & 1 && distance < nearest) nearest = distance;
  }
  return nearest;
}

// A missile that is released from its player appears at the player's middle.
EVERYWHERE u8 middle_of(const Player &player) {
  u32 size = player.number_size & 7;
  return (u8)((player.position + (size == 5 ? 8 : size == 7 ? 16 : 4)) % WIDTH);
}

EVERYWHERE i32 player_width(const Player &player) {
  u32 size = player.number_size & 7;
  return size == 5 ? 16 : size == 7 ? 32 : 8;
}

// ------------------------------------------------------------------ when a write shows

// Clocks from a write until the beam shows it.
EVERYWHERE i32 write_delay(const Tia &tia, u32 reg, i32 clock) {
  switch (reg) {
    case PF0: case PF1: case PF2:
      // Two clocks to settle, then it shows from the next playfield pixel, every four clocks.
      return 2 + (-(clock + 2) & 3);
    case NUSIZ0: case NUSIZ1: return 8;
    case RESM0: case RESM1: return 8;  // until then the old place is drawn
    case GRP0: case GRP1: case REFP0: case REFP1: return 1;
    case RESP0: case RESP1: {
      // A copy that is being drawn is finished.
      const Player &player = reg == RESP0 ? tia.player0 : tia.player1;
      i32 distance = distance_from_copy(player, strobed_position(clock, 5));
      return distance >= 4 && distance < 4 + player_width(player) ? 11 : 0;
    }
    default: return 0;
  }
}

// Whether a write changes what the beam draws, so that the line must be drawn up to it first.
EVERYWHERE bool changes_the_line(const Tia &tia, u32 reg, u8 value, bool drawn) {
  const Player &p0 = tia.player0, &p1 = tia.player1;
  switch (reg) {
    case VBLANK: return (tia.vblank ^ value) & 2;
    case NUSIZ0: return p0.number_size != value || p0.first_hidden;
    case NUSIZ1: return p1.number_size != value || p1.first_hidden;
    case COLUP0: return drawn && tia.color_player0 != (value & 0xfe);
    case COLUP1: return drawn && tia.color_player1 != (value & 0xfe);
    case COLUPF: return drawn && tia.color_playfield != (value & 0xfe);
    case COLUBK: return drawn && tia.color_background != (value & 0xfe);
    case CTRLPF: return tia.control != value || tia.reflected != (value & 1);
    case REFP0: return p0.reflected != (value & 8);
    case REFP1: return p1.reflected != (value & 8);
    case PF0: return (tia.playfield & 0x0000f) != (u32)value >> 4;
    case PF1: return (tia.playfield >> 4 & 0xff) != reverse_8(value);
    case PF2: return tia.playfield >> 12 != value;
    case GRP0:
      return (p0.graphics != value && !p0.delayed) ||
             (p1.old_graphics != p1.graphics && p1.delayed);
    case GRP1:
      return (p1.graphics != value && !p1.delayed) ||
             (p0.old_graphics != p0.graphics && p0.delayed) ||
             (tia.ball.old_enabled != tia.ball.enabled && tia.ball.delayed);
    case ENAM0: return tia.missile0.enabled != (value & 2);
    case ENAM1: return tia.missile1.enabled != (value & 2);
    case ENABL: return tia.ball.enabled != (value & 2);
    case VDELP0: return p0.delayed != (value & 1);
    case VDELP1: return p1.delayed != (value & 1);
    case VDELBL: return tia.ball.delayed != (value & 1);
    case RESMP0: return tia.missile0.locked != (value & 2);
    case RESMP1: return tia.missile1.locked != (value & 2);
    case VSYNC: case RESP0: case RESP1: case RESM0: case RESM1: case RESBL:
    case HMOVE: case CXCLR: return true;
    default: return false;  // motion registers, sound, WSYNC
  }
}

// ------------------------------------------------------------------ writes

EVERYWHERE void strobe_player(Player &player, i32 clock) {
  i32 position = strobed_position(clock, 5);
  // The first copy is hidden on this line, unless it was just about to start.
  player.first_hidden = distance_from_copy(player, position) >= 4;
  player.position = (u8)position;
}

// Missiles and the ball. Of the strobes that follow an HMOVE, ALE places a few apart from the rule.
// These are all of them: seen with a program of our own that tries every HMOVE in cycles -3 to 30,
// every strobe 3 or 5 to 30 cycles later and eight motions (which make no difference).
EVERYWHERE u8 strobe_after_hmove(const Tia &tia, u32 reg, i32 clock) {
  i32 cycle = line_cycle(clock), since = (i32)((u32)clock - (u32)tia.hmove_clock) / CLOCKS_PER_CYCLE;
  i32 hmove = cycle - since;
  if (hmove == 3) {
    if (reg == RESM0 && cycle == 23) return 8;
    if (reg == RESM1 && cycle == 6) return 3;
    if (reg == RESBL && cycle == 6) return 3;
    if (reg == RESBL && cycle == 9) return 5;
    if (reg == RESBL && cycle == 10) return 6;
  }
  if (reg == RESBL && since == 18 && (cycle == 20 || cycle == 23)) return 10;
  return (u8)strobed_position(clock, 4);
}

EVERYWHERE void lock_missile(Missile &missile, const Player &player, u8 value) {
  if (missile.locked && !(value & 2)) missile.position = middle_of(player);
  missile.locked = value & 2;
}

EVERYWHERE void move_objects(Tia &tia, const Game &game, i32 clock) {
  i32 cycle = line_cycle(clock);
  if (game.has_comb && (cycle <= 20 || cycle == 75)) tia.comb = 1;
  Player &p0 = tia.player0, &p1 = tia.player1;
  p0.position = moved(p0.position, hmove_distance(cycle, p0.motion));
  p1.position = moved(p1.position, hmove_distance(cycle, p1.motion));
  tia.missile0.position = moved(tia.missile0.position, hmove_distance(cycle, tia.missile0.motion));
  tia.missile1.position = moved(tia.missile1.position, hmove_distance(cycle, tia.missile1.motion));
  tia.ball.position = moved(tia.ball.position, hmove_distance(cycle, tia.ball.motion));
  p0.first_hidden = p1.first_hidden = 0;
  tia.hmove_clock = clock;
}

// The part of a write that only the beam notices. The line is drawn up to where the write shows.
EVERYWHERE void write_beam(Tia &tia, const Game &game, u32 reg, u8 value, i32 clock) {
  Player &p0 = tia.player0, &p1 = tia.player1;
  switch (reg) {
    case VBLANK: tia.vblank = value; break;
    case NUSIZ0: p0.number_size = value; p0.first_hidden = 0; break;
    case NUSIZ1: p1.number_size = value; p1.first_hidden = 0; break;
    case COLUP0: tia.color_player0 = value & 0xfe; break;
    case COLUP1: tia.color_player1 = value & 0xfe; break;
    case COLUPF: tia.color_playfield = value & 0xfe; break;
    case COLUBK: tia.color_background = value & 0xfe; break;
    case CTRLPF:
      tia.control = value;
      // Reflection is decided before the middle of the line; a later write is for the next line.
      if (CLOCKS_PER_CYCLE * line_cycle(clock) < BLANK_CLOCKS + WIDTH / 2 - 1)
        tia.reflected = value & 1;
      break;
    case REFP0: p0.reflected = value & 8; break;
    case REFP1: p1.reflected = value & 8; break;
    case PF0: tia.playfield = (tia.playfield & 0xffff0) | value >> 4; break;
    case PF1: tia.playfield = (tia.playfield & 0xff00f) | reverse_8(value) << 4; break;
    case PF2: tia.playfield = (tia.playfield & 0x00fff) | (u32)value << 12; break;
    case RESP0: strobe_player(p0, clock); break;
    case RESP1: strobe_player(p1, clock); break;
    case RESM0: tia.missile0.position = strobe_after_hmove(tia, reg, clock); break;
    case RESM1: tia.missile1.position = strobe_after_hmove(tia, reg, clock); break;
    case RESBL: tia.ball.position = strobe_after_hmove(tia, reg, clock); break;
    case GRP0: p0.graphics = value; p1.old_graphics = p1.graphics; break;
    case GRP1:
      p1.graphics = value;
      p0.old_graphics = p0.graphics;
      tia.ball.old_enabled = tia.ball.enabled;
      break;
    case ENAM0: tia.missile0.enabled = value & 2; break;
    case ENAM1: tia.missile1.enabled = value & 2; break;
    case ENABL: tia.ball.enabled = value & 2; break;
    case HMP0: p0.motion = value >> 4; break;
    case HMP1: p1.motion = value >> 4; break;
    case HMM0: tia.missile0.motion = value >> 4; break;
    case HMM1: tia.missile1.motion = value >> 4; break;
    case HMBL: tia.ball.motion = value >> 4; break;
    case VDELP0: p0.delayed = value & 1; break;
    case VDELP1: p1.delayed = value & 1; break;
    case VDELBL: tia.ball.delayed = value & 1; break;
    case RESMP0: lock_missile(tia.missile0, p0, value); break;
    case RESMP1: lock_missile(tia.missile1, p1, value); break;
    case HMOVE: move_objects(tia, game, clock); break;
    case HMCLR:
      p0.motion = p1.motion = tia.missile0.motion = tia.missile1.motion = tia.ball.motion = 0;
      break;
    default: break;
  }
}

// ------------------------------------------------------------------ reads

EVERYWHERE u8 read_paddle(const Controls &controls, i32 charge, u32 cycle) {
  if (charge == ALWAYS) return 0x80;
  if (charge == NEVER || controls.discharging) return 0;
  return cycle > controls.discharge_cycle + (u32)charge ? 0x80 : 0;
}

// Only bits 7 and 6 are driven; the others are what was last on the data bus.
OUTLINED u8 read_tia(const Console &console, u32 cycle, u32 bus, u32 reg) {
  const Controls &controls = console.controls;
  u32 value = 0;
  reg &= 15;
  if (reg < 8) {
    u32 pair = (u32)console.frame.collisions >> 2 * reg;
    value = (pair & 1) << 7 | (pair & 2) << 5;
  } else if (reg == 8) {
    value = read_paddle(controls, controls.charge_0, cycle);
  } else if (reg == 9) {
    value = read_paddle(controls, controls.charge_1, cycle);
  } else if (reg < 12) {
    value = read_paddle(controls, controls.charge_others, cycle);
  } else if (reg == 12) {
    value = controls.trigger_0;
  } else if (reg == 13) {
    value = controls.trigger_1;
  }
  return (u8)(value | (bus & 0x3f));
}

}  // namespace atari2600
