// What translated instructions (translate.py) are made of. The processor's registers and what each
// write to the TIA needs are variables of one function here, so that the compiler keeps them in the
// registers of the GPU.
#pragma once
#include "beam.h"
#include "processor.h"

namespace atari2600 {

struct Running {
  u32 a, x, y, s;
  u32 negative, nonzero, carry, overflow;  // as in Processor
  u32 now;    // cycles since the frame began
  i32 left;   // instructions
  u32 upper;  // bits of the program counter that do not choose a byte of the bank
  u32 writes, most_writes;  // recorded so far, and how many may be
  u32 last_access;
  i32 seen;
  i32 deadline;  // the clock from which a write does more: a row or the frame's time has ended
};

// Writes are recorded from the first row on the screen to the last.
EVERYWHERE void take_beam(Running &r, const Frame &frame) {
  const i32 latest = (LAST_LINE + 1) * CLOCKS_PER_LINE;
  r.writes = frame.writes;
  r.most_writes = frame.rows > 0 && frame.next_row != NO_MORE_ROWS ? MOST_WRITES : 0;
  r.last_access = frame.last_access;
  r.seen = frame.seen;
  r.deadline = frame.next_row < latest ? frame.next_row : latest;
}
EVERYWHERE void put_beam(const Running &r, Frame &frame) {
  frame.writes = r.writes;
  frame.last_access = r.last_access;
  frame.seen = r.seen;
}

EVERYWHERE void take_registers(Running &r, const Machine &m, u32 window) {
  const Processor &cpu = m.cpu;
  r.a = get(cpu, A);
  r.x = get(cpu, X);
  r.y = get(cpu, Y);
  r.s = get(cpu, S);
  r.negative = cpu.negative;
  r.nonzero = cpu.nonzero;
  r.carry = cpu.carry;
  r.overflow = cpu.overflow;
  r.now = cpu.cycle - m.first_cycle;
  r.left = m.instructions;
  r.upper = cpu.pc & ~window;
  take_beam(r, m.console.frame);
}
EVERYWHERE void put_registers(const Running &r, Machine &m, u32 pc) {
  Processor &cpu = m.cpu;
  cpu.registers = r.a | r.x << 8 | r.y << 16 | r.s << 24;
  cpu.negative = r.negative;
  cpu.nonzero = r.nonzero;
  cpu.carry = r.carry;
  cpu.overflow = r.overflow;
  cpu.cycle = m.first_cycle + r.now;
  cpu.pc = pc;
  m.instructions = r.left;
  put_beam(r, m.console.frame);
}

// ------------------------------------------------------------------ writes to the TIA

// A write that is rare or does much. The frame may end with it.
OUTLINED Timing write_slowly(Console &console, const Game &game, Recording &recording, u32 cycle,
                             u32 reg, u32 value) {
  IS_SHARED(&console);
  i32 clock = (i32)(CLOCKS_PER_CYCLE * (cycle - console.frame.first_cycle));
  write_recorded(console, game, recording, reg, (u8)value, clock);
  return write_timing(console, recording, cycle, reg, (u8)value);
}
// Returns whether the frame has ended.
EVERYWHERE bool write_tia_slowly(Running &r, Machine &m, u32 reg, u32 value) {
  put_beam(r, m.console.frame);
  Timing timing = write_slowly(m.console, m.game, m.recording, m.first_cycle + r.now, reg, value);
  m.stopped = timing.stopped;
  r.now = timing.cycle - m.first_cycle;
  take_beam(r, m.console.frame);
  return m.stopped;
}

EVERYWHERE bool is_late(const Running &r, u32 reg) {
  if (reg == WSYNC) return r.now >= (LAST_LINE + 1) * CYCLES_PER_LINE;
  return (i32)(CLOCKS_PER_CYCLE * r.now) >= r.deadline;
}

// A write of a simple register that is not late.
EVERYWHERE void write_simply(Running &r, Machine &m, u32 reg, u32 value) {
  i32 clock = (i32)(CLOCKS_PER_CYCLE * r.now);
  r.last_access = record_of(clock, reg, (u8)value);
  if (reg == WSYNC) {
    r.now = (r.now + CYCLES_PER_LINE - 1) / CYCLES_PER_LINE * CYCLES_PER_LINE;
    return;
  }
  if (clock > r.seen) r.seen = clock;
  if (!is_on_screen(reg)) return;
  if (r.writes < r.most_writes) m.recording.writes[r.writes++] = r.last_access;
  write_beam(m.console.tia, m.game, reg, (u8)value, clock);
}

// ------------------------------------------------------------------ reads of the chips

struct Read {
  u32 value;
  bool ready;
};

// A read of the TIA or of the RIOT. It is not ready if collisions of many lines are asked for that
// are not latched yet; the interpreter then waits for them.
OUTLINED Read read_slowly(Console &console, const Game &game, Recording &recording, u32 cycle,
                          u32 address, u32 bus) {
  IS_SHARED(&console);
  Frame &frame = console.frame;
  if (!is_tia(address)) return {read_riot(console, address, cycle), true};
  i32 clock = (i32)(CLOCKS_PER_CYCLE * (cycle - frame.first_cycle));
  frame.last_access = record_of(clock, VSYNC, 0);
  if ((address & 15) < 8) {
    reach(frame, console.tia, recording, clock);
    if (has_pending_collisions(frame, game) && !latch_few_lines(frame, game, recording))
      return {0, false};
  }
  return {read_tia(console, cycle, bus, address), true};
}

// An instruction of so many cycles reads a chip; returns whether it was ready.
EVERYWHERE bool read_chip(Running &r, Machine &m, u32 cycles, u32 address, u32 bus, u32 &value) {
  u32 now = r.now + cycles;
  put_beam(r, m.console.frame);
  Read read = read_slowly(m.console, m.game, m.recording, m.first_cycle + now, address, bus);
  take_beam(r, m.console.frame);
  if (RARELY(!read.ready)) return false;
  value = read.value;
  r.now = now;
  return true;
}

EVERYWHERE void write_riot(const Running &r, Machine &m, u32 address, u32 value) {
  write_riot(m.console.riot, address, (u8)value, m.first_cycle + r.now);
}

EVERYWHERE void switch_bank(Machine &m, u32 bank) {
  m.cpu.slices = bank_of_4k(bank);
  m.bank = bank_start(m.cpu.slices);
  m.next_pc = NOT_FETCHED;
}

// Hot spots begin at an address within the bank.
EVERYWHERE bool is_plain_rom(u32 address, u32 first_hot) {
  return is_cartridge(address) && (address & 0xfff) < first_hot;
}

// ------------------------------------------------------------------ subroutines

EVERYWHERE void call(Running &r, u8 *ram, u32 from) {
  ram[r.s & 127] = (u8)(from >> 8);
  ram[(r.s - 1) & 127] = (u8)from;
  r.s = (r.s - 2) & 0xff;
}
EVERYWHERE u32 go_back(Running &r, const u8 *ram) {
  u32 low = ram[(r.s + 1) & 127], high = ram[(r.s + 2) & 127];
  r.s = (r.s + 2) & 0xff;
  return ((low | high << 8) + 1) & 0xffff;
}

// ------------------------------------------------------------------ flags

EVERYWHERE void set_flags(Running &r, u32 value) { r.negative = r.nonzero = value; }
EVERYWHERE void load(Running &r, u32 &to, u32 value) {
  to = value;
  set_flags(r, value);
}
EVERYWHERE void add(Running &r, u32 operand) {
  u32 sum = r.a + operand + r.carry;
  r.carry = sum >> 8;
  r.overflow = ((r.a ^ sum) & (operand ^ sum)) >> 7 & 1;
  load(r, r.a, sum & 0xff);
}
EVERYWHERE void compare(Running &r, u32 value, u32 operand) {
  r.carry = value >= operand;
  set_flags(r, (value - operand) & 0xff);
}
EVERYWHERE void test_bits(Running &r, u32 value) {
  r.nonzero = r.a & value;
  r.negative = value;
  r.overflow = value >> 6 & 1;
}
EVERYWHERE u32 shifted_left(Running &r, u32 value, u32 carry_in) {
  r.carry = value >> 7;
  u32 result = (value << 1 | carry_in) & 0xff;
  set_flags(r, result);
  return result;
}
EVERYWHERE u32 shifted_right(Running &r, u32 value, u32 carry_in) {
  r.carry = value & 1;
  u32 result = value >> 1 | carry_in << 7;
  set_flags(r, result);
  return result;
}
EVERYWHERE u32 changed(Running &r, u32 result) {
  result &= 0xff;
  set_flags(r, result);
  return result;
}
EVERYWHERE u32 status(const Running &r, const Processor &cpu) {
  return (r.negative & 0x80) | r.overflow << 6 | 0x30 | cpu.decimal << 3 | cpu.interrupt << 2 |
         (r.nonzero == 0) << 1 | r.carry;
}

EVERYWHERE void set_status(Running &r, Processor &cpu, u32 value) {
  r.negative = value;
  r.overflow = value >> 6 & 1;
  cpu.decimal = value >> 3 & 1;
  cpu.interrupt = value >> 2 & 1;
  r.nonzero = !(value >> 1 & 1);
  r.carry = value & 1;
}

}  // namespace atari2600
