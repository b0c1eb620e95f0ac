// The 6532 RIOT: the interval timer, the joysticks' port and the console's switches.
#pragma once
#include "console.h"
#include "decode.h"

namespace atari2600 {

// The timer loses one at once and then one for each interval. Past zero it loses one for each
// cycle; the first read after that puts it back to its interval.
EVERYWHERE u8 read_timer(Riot &riot, u32 cycle) {
  u32 elapsed = cycle - 1 - riot.timer_cycle, span = (u32)riot.timer << riot.shift;
  if (elapsed < span) return (u8)(riot.timer - 1 - (elapsed >> riot.shift));
  u32 past = elapsed - span;
  if (!riot.slipped && past) riot.slipped = past + 1;
  if (riot.slipped) return (u8)(riot.timer - (elapsed >> riot.shift) - riot.slipped);
  return 0xff;
}

EVERYWHERE u8 read_timer_flag(const Riot &riot, u32 cycle) {
  u32 elapsed = cycle - 1 - riot.timer_cycle, span = (u32)riot.timer << riot.shift;
  return elapsed >= span && !riot.slipped ? 0x80 : 0;
}

// How many more turns a loop surely takes that reads the timer (or its flag) every `period` cycles
// with `load` and goes round by `branch`: until the timer is 0, or bit 7 is set.
EVERYWHERE u32 turns_of_waiting(const Riot &riot, u32 cycle, u64 load, bool is_flag, u32 branch,
                                u32 period) {
  u32 control = control_of(load), elapsed = cycle - 1 - riot.timer_cycle;
  u32 span = (u32)riot.timer << riot.shift;
  bool is_bit = control & OTHER && operation_of(load) == BIT;
  bool is_load = !(control & OTHER) && control & SETS_ZERO &&
                 (control & 0xff) == (ZERO << FIRST_SHIFT | OPERAND << SECOND_SHIFT);
  if (riot.slipped) return 0;
  if (branch == BNE && is_load && !is_flag) {
    span = riot.timer ? (u32)(riot.timer - 1) << riot.shift : 0;
  } else if (branch != BPL || !(is_load || is_bit) || (!is_flag && riot.timer > 128)) {
    return 0;
  }
  return elapsed < span ? (span - elapsed - 1) / period : 0;
}

EVERYWHERE u8 read_riot(Console &console, u32 address, u32 cycle) {
  Riot &riot = console.riot;
  if (address & 4)
    return address & 1 ? read_timer_flag(riot, cycle) : read_timer(riot, cycle);
  switch (address & 3) {
    case 0:  // SWCHA: pins set as outputs show what was written
      return (console.controls.port_a & ~riot.port_a_direction) |
             (riot.port_a & riot.port_a_direction);
    case 1: return riot.port_a_direction;
    case 2: return console.controls.switches;
    default: return 0;
  }
}

EVERYWHERE void write_riot(Riot &riot, u32 address, u8 value, u32 cycle) {
  if ((address & 0x14) == 0x14) {  // TIM1T, TIM8T, TIM64T, T1024T
    u32 interval = address & 3;
    riot.timer = value;
    riot.shift = interval == 3 ? 10 : (u8)(3 * interval);
    riot.timer_cycle = cycle;
    riot.slipped = 0;
  } else if (!(address & 4)) {
    if ((address & 3) == 0) riot.port_a = value;
    if ((address & 3) == 1) riot.port_a_direction = value;
  }
}

}  // namespace atari2600
