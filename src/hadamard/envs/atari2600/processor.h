// The 6507. Every access of an instruction happens at its end: the whole cycle count is charged
// first. That, and the values on the data bus, are ALE's timing.
#pragma once
#include "cartridge.h"
#include "decode.h"
#include "recording.h"
#include "riot.h"

namespace atari2600 {

// A console that is running, with what every instruction needs at hand.
struct Machine {
  Processor cpu;
  u64 next;     // the instruction at next_pc, fetched in advance
  u32 next_pc;  // or NOT_FETCHED
  const u64 *program;
  const u8 *rom;
  i32 cartridge;
  u32 window;  // the addresses of one bank, for cartridges that switch only whole ones, or 0
  u32 bank;    // where the current one begins
  u32 first_cycle;   // of the frame
  i32 instructions;  // left
  bool stopped;
  Console &console;
  const Game &game;
  Recording &recording;
};

enum : u32 { NOT_FETCHED = 0xffffffffu };

// ------------------------------------------------------------------ memory

EVERYWHERE bool is_cartridge(u32 address) { return address & 0x1000; }
EVERYWHERE bool is_tia(u32 address) { return !(address & 0x1080); }
EVERYWHERE bool is_ram(u32 address) { return (address & 0x1280) == 0x0080; }
EVERYWHERE bool is_riot(u32 address) { return (address & 0x1280) == 0x0280; }

EVERYWHERE i32 frame_clock(const Machine &m) {
  return (i32)(CLOCKS_PER_CYCLE * (m.cpu.cycle - m.first_cycle));
}

EVERYWHERE void touch_cartridge(Machine &m, u32 address) {
  if (USUALLY((address & 0xfff) < FIRST_HOT_SPOT)) return;
  touch_hot_spot(m.cpu.slices, m.cartridge, address);
  m.next_pc = NOT_FETCHED;
  m.bank = bank_start(m.cpu.slices);
}

EVERYWHERE u32 place(const Machine &m, u32 address) {
  if (USUALLY(m.window)) return m.bank + (address & m.window);
  return place_in_rom(m.cpu.slices, m.cartridge, address);
}

EVERYWHERE u8 read_cartridge(Machine &m, u32 address) {
  touch_cartridge(m, address);
  return read_only(m.rom + place(m, address));
}

// A byte of the program, which may switch banks but is never in the TIA or the RIOT.
EVERYWHERE u8 fetch_byte(const Console &console, const Game &game, u32 &slices, u32 address) {
  if (is_cartridge(address)) {
    touch_hot_spot(slices, game.cartridge, address);
    return game.rom[place_in_rom(slices, game.cartridge, address)];
  }
  return (address & 0x280) == 0x80 ? console.ram[address & 127] : 0;
}

// An instruction in RAM, near the hot spots or at the end of a slice.
struct Fetched {
  u64 word;
  u32 slices;
};
OUTLINED Fetched fetch_slowly(const Console &console, const Game &game, u32 slices, u32 pc) {
  u8 opcode = fetch_byte(console, game, slices, pc), low = 0, high = 0;
  u32 length = length_of(control_of(decode(opcode, 0, 0)));
  if (length > 1) low = fetch_byte(console, game, slices, (pc + 1) & 0xffff);
  if (length > 2) high = fetch_byte(console, game, slices, (pc + 2) & 0xffff);
  return {decode(opcode, low, high), slices};
}

EVERYWHERE u64 decoded(const Machine &m, u32 pc) {
  return read_only(m.program + place(m, pc));
}

EVERYWHERE u64 fetch(Machine &m) {
  u32 pc = m.cpu.pc;
  if (pc == m.next_pc) return m.next;
  if (USUALLY(is_plain_code(m.cartridge, pc))) return decoded(m, pc);
  Fetched fetched = fetch_slowly(m.console, m.game, m.cpu.slices, pc);
  m.cpu.slices = fetched.slices;
  m.bank = bank_start(fetched.slices);
  return fetched.word;
}

EVERYWHERE void fetch_in_advance(Machine &m, u32 pc) {
  bool plain = is_plain_code(m.cartridge, pc);
  m.next_pc = plain ? pc : NOT_FETCHED;
  if (USUALLY(plain)) m.next = decoded(m, pc);
}


// Both bytes of a pointer in the zero page.
OUTLINED u32 read_pointer_slowly(const Console &console, u32 cycle, u32 bus, u32 address) {
  u32 pointer = 0;
  for (u32 i = 0; i < 2; i++) {
    u32 place = (address + i) & 0xff;
    u32 byte = place & 0x80 ? console.ram[place & 127] : read_tia(console, cycle, bus, place);
    pointer |= byte << 8 * i;
  }
  return pointer;
}
EVERYWHERE u32 read_pointer(const Machine &m, u32 bus, u32 address) {
  if (USUALLY(address - 0x80 < 0x7f))
    return m.console.ram[address & 127] | (u32)m.console.ram[(address & 127) + 1] << 8;
  return read_pointer_slowly(m.console, m.cpu.cycle, bus, address);
}

// The part of a write to the TIA that the processor notices: the frame's end, the paddles, WSYNC.
enum { LAST_LINE = 290, SHORTEST_SYNC = CYCLES_PER_LINE };

// What a write changes of the processor: WSYNC stops it until the line ends.
struct Timing {
  u32 cycle;
  bool stopped;  // the frame has ended
};

EVERYWHERE void end_frame(Console &console, Recording &recording, u32 elapsed, Timing &timing) {
  Frame &frame = console.frame;
  reach(frame, console.tia, recording, (i32)(CLOCKS_PER_CYCLE * elapsed));
  frame.done = 1;
  frame.unfinished = 0;
  timing.stopped = true;
}

EVERYWHERE Timing write_timing(Console &console, Recording &recording, u32 cycle, u32 reg, u8 value) {
  Frame &frame = console.frame;
  Controls &controls = console.controls;
  Timing timing = {cycle, false};
  u32 elapsed = cycle - frame.first_cycle;
  if (RARELY(elapsed >= (LAST_LINE + 1) * CYCLES_PER_LINE)) end_frame(console, recording, elapsed, timing);
  if (reg == WSYNC) {
    u32 phase = elapsed % CYCLES_PER_LINE;
    if (phase) timing.cycle += CYCLES_PER_LINE - phase;
  } else if (reg == VSYNC) {
    if (value & 2) {
      frame.sync_end = cycle + SHORTEST_SYNC;
    } else if (frame.sync_end && (i32)(cycle - frame.sync_end) >= 0) {
      frame.sync_end = 0;
      end_frame(console, recording, elapsed, timing);
    }
  } else if (reg == VBLANK) {
    if (controls.discharging && !(value & 0x80))
      controls.discharge_cycle = cycle;  // the paddles' capacitors charge from here
    controls.discharging = value >> 7;
  }
  return timing;
}

EVERYWHERE void write(Machine &m, u32 address, u8 value) {
  if (is_tia(address)) {
    u32 reg = address & 0x3f;
    write_recorded(m.console, m.game, m.recording, reg, value, frame_clock(m));
    Timing timing = write_timing(m.console, m.recording, m.cpu.cycle, reg, value);
    m.cpu.cycle = timing.cycle;
    m.stopped = timing.stopped || m.stopped;
  } else if (is_cartridge(address)) {
    touch_cartridge(m, address);
  } else if (is_riot(address)) {
    write_riot(m.console.riot, address, value, m.cpu.cycle);
  } else {
    m.console.ram[address & 127] = value;
  }
}

// The stack of a subroutine or an interrupt is in RAM.
EVERYWHERE u32 stack_pointer(const Processor &cpu) { return cpu.registers >> 8 * S; }
EVERYWHERE void move_stack(Processor &cpu, i32 by) { cpu.registers += (u32)by << 8 * S; }
EVERYWHERE void push(Machine &m, u32 value) {
  m.console.ram[stack_pointer(m.cpu) & 127] = (u8)value;
  move_stack(m.cpu, -1);
}
EVERYWHERE u32 pull(Machine &m) {
  move_stack(m.cpu, 1);
  return m.console.ram[stack_pointer(m.cpu) & 127];
}

// ------------------------------------------------------------------ flags and arithmetic

EVERYWHERE u32 status(const Processor &cpu) {  // bits 5 and 4 are always set
  return (cpu.negative & 0x80) | cpu.overflow << 6 | 0x30 | cpu.decimal << 3 | cpu.interrupt << 2 |
         (cpu.nonzero == 0) << 1 | cpu.carry;
}
EVERYWHERE void set_status(Processor &cpu, u32 value) {
  cpu.negative = value;
  cpu.overflow = value >> 6 & 1;
  cpu.decimal = value >> 3 & 1;
  cpu.interrupt = value >> 2 & 1;
  cpu.nonzero = !(value >> 1 & 1);
  cpu.carry = value & 1;
}

EVERYWHERE u32 get(const Processor &cpu, Source source) { return cpu.registers >> 8 * source & 0xff; }
EVERYWHERE void set(Processor &cpu, To to, u32 value) {
  cpu.registers = with_result(cpu.registers, value & 0xff, to);
}
EVERYWHERE void set_flags(Processor &cpu, u32 value) { cpu.negative = cpu.nonzero = value & 0xff; }
EVERYWHERE void set_a(Processor &cpu, u32 value) {
  set(cpu, TO_A, value);
  set_flags(cpu, value);
}

// The two digits of a byte, as a number; a digit of ten or more carries.
EVERYWHERE i32 from_decimal(u32 byte) { return (i32)((byte >> 4) * 10 + (byte & 15)); }
EVERYWHERE u32 to_decimal(i32 number) { return (u32)(number / 10 % 10) << 4 | (u32)(number % 10); }

// Overflow compares the decimal result with both numbers, as in binary.
EVERYWHERE void add_decimal(Processor &cpu, u32 operand) {
  u32 before = get(cpu, A);
  i32 sum = from_decimal(before) + from_decimal(operand) + (i32)cpu.carry;
  u32 result = to_decimal(sum);
  cpu.carry = sum > 99;
  cpu.overflow = ((before ^ result) & (operand ^ result)) >> 7 & 1;
  set_a(cpu, result);
}
EVERYWHERE void subtract_decimal(Processor &cpu, u32 operand) {
  u32 before = get(cpu, A), borrow = !cpu.carry;
  i32 difference = from_decimal(before) - from_decimal(operand) - (i32)borrow;
  u32 result = to_decimal(difference < 0 ? difference + 100 : difference);
  cpu.carry = before >= operand + borrow;
  cpu.overflow = ((before ^ result) & (operand ^ result)) >> 7 & 1;
  set_a(cpu, result);
}

EVERYWHERE void add_binary(Processor &cpu, u32 operand) {
  u32 before = get(cpu, A), sum = before + operand + cpu.carry;
  cpu.carry = sum >> 8;
  cpu.overflow = ((before ^ sum) & (operand ^ sum)) >> 7 & 1;
  set_a(cpu, sum);
}
EVERYWHERE void add(Processor &cpu, u32 operand) {
  if (cpu.decimal) add_decimal(cpu, operand); else add_binary(cpu, operand);
}
EVERYWHERE void subtract(Processor &cpu, u32 operand) {
  if (cpu.decimal) subtract_decimal(cpu, operand); else add_binary(cpu, operand ^ 0xff);
}

EVERYWHERE void compare(Processor &cpu, u32 value, u32 operand) {
  cpu.carry = value >= operand;
  set_flags(cpu, value - operand);
}

EVERYWHERE u32 shift_left(Processor &cpu, u32 value, u32 carry_in) {
  cpu.carry = value >> 7;
  return (value << 1 | carry_in) & 0xff;
}
EVERYWHERE u32 shift_right(Processor &cpu, u32 value, u32 carry_in) {
  cpu.carry = value & 1;
  return value >> 1 | carry_in << 7;
}

// ------------------------------------------------------------------ instructions

// The instructions of the formula in decode.h; returns the result.
EVERYWHERE u32 execute_formula(Processor &cpu, u64 word, u32 operand) {
  u32 control = control_of(word);
  u32 first = byte_at(cpu.registers, operand, control >> FIRST_SHIFT);
  u32 second = byte_at(cpu.registers, operand, control >> SECOND_SHIFT);
  if (control & INVERTED) second ^= 0xff;
  u32 carry = (control & CARRY_ONE ? 1 : 0) | (control & CARRY_FLAG ? cpu.carry : 0);
  u32 sum = first + second + carry, result = sum, carries = sum >> 8;
  if (RARELY(control & (ANDED | XORED)))
    result = (control & ANDED ? first & second : 0) | (control & XORED ? first ^ second : 0);
  if (RARELY(control & SHIFTED)) {
    result = second >> 1 | carry << 7;
    carries = second & 1;
  }
  result &= 0xff;
  if (RARELY(control & SETS_OVERFLOW)) {
    if (RARELY(cpu.decimal)) {
      if (control & INVERTED) subtract_decimal(cpu, operand); else add_decimal(cpu, operand);
      return 0;
    }
    cpu.overflow = ((first ^ sum) & (second ^ sum)) >> 7 & 1;
  }
  if (control & SETS_CARRY) cpu.carry = carries;
  if (control & SETS_ZERO) cpu.negative = cpu.nonzero = result;
  cpu.registers = with_result(cpu.registers, result, (u32)word >> TO_SHIFT);
  return result;
}

EVERYWHERE void branch(Processor &cpu, u32 operation, u32 offset) {
  u32 which = operation - BPL;
  u32 flags = cpu.negative >> 7 | cpu.overflow << 1 | cpu.carry << 2 | (cpu.nonzero == 0) << 3;
  if ((flags >> (which >> 1) & 1) != (which & 1)) return;
  u32 target = (cpu.pc + (u32)(i32)(i8)offset) & 0xffff;
  cpu.cycle += ((target ^ cpu.pc) & 0xff00) ? 2 : 1;
  cpu.pc = target;
}

// All other instructions; returns what is stored, by those that store.
EVERYWHERE u32 execute_other(Machine &m, u32 operation, u32 address, u32 operand) {
  Processor &cpu = m.cpu;
  u32 value = operand, page_after = (address >> 8) + 1;
  switch (operation) {
    case JSR:
      push(m, (cpu.pc - 1) >> 8);
      push(m, cpu.pc - 1);
      cpu.pc = address;
      break;
    case RTS: {
      u32 low = pull(m);
      cpu.pc = ((low | pull(m) << 8) + 1) & 0xffff;
      break;
    }
    case JMP: cpu.pc = address; break;
    case BIT:
      cpu.nonzero = get(cpu, A) & value;
      cpu.negative = value;
      cpu.overflow = value >> 6 & 1;
      break;
    case PHA: return get(cpu, A);
    case PHP: return status(cpu);
    case PLA: set_a(cpu, value); break;
    case PLP: set_status(cpu, value); break;
    case CLC: cpu.carry = 0; break;
    case SEC: cpu.carry = 1; break;
    case CLI: cpu.interrupt = 0; break;
    case SEI: cpu.interrupt = 1; break;
    case CLV: cpu.overflow = 0; break;
    case CLD: cpu.decimal = 0; break;
    case SED: cpu.decimal = 1; break;

    case SHX: return get(cpu, X) & page_after;
    case SHY: return get(cpu, Y) & page_after;
    case SHA: return get(cpu, A) & get(cpu, X) & page_after;
    case SLO: value = shift_left(cpu, value, 0); set_a(cpu, get(cpu, A) | value); break;
    case SRE: value = shift_right(cpu, value, 0); set_a(cpu, get(cpu, A) ^ value); break;
    case RLA: value = shift_left(cpu, value, cpu.carry); set_a(cpu, get(cpu, A) & value); break;
    case RRA: value = shift_right(cpu, value, cpu.carry); add(cpu, value); break;
    case ISB: value = (value + 1) & 0xff; subtract(cpu, value); break;
    case DCP: value = (value - 1) & 0xff; compare(cpu, get(cpu, A), value); break;
    case ANC: set_a(cpu, get(cpu, A) & value); cpu.carry = cpu.negative >> 7; break;
    case ALR: set_a(cpu, shift_right(cpu, get(cpu, A) & value, 0)); break;
    case ARR: {
      u32 result = (get(cpu, A) & value) >> 1 | cpu.carry << 7;
      cpu.carry = result >> 6 & 1;
      cpu.overflow = (result >> 6 ^ result >> 5) & 1;
      set_a(cpu, result);
      break;
    }
    case SBX: {
      u32 both = get(cpu, A) & get(cpu, X);
      compare(cpu, both, value);
      set(cpu, TO_X, both - value);
      break;
    }
    case XAA: set_a(cpu, get(cpu, X) & value); break;
    case LXA:
      set_a(cpu, (get(cpu, A) | 0xee) & value);
      set(cpu, TO_X, get(cpu, A));
      break;
    case LAS:
      set_a(cpu, value & get(cpu, S));
      set(cpu, TO_X, get(cpu, A));
      set(cpu, TO_S, get(cpu, A));
      break;

    case JMI: {  // the pointer does not cross a page
      u32 next = (address & 0xff00) | ((address + 1) & 0xff);
      u32 low = fetch_byte(m.console, m.game, cpu.slices, address);
      cpu.pc = low | (u32)fetch_byte(m.console, m.game, cpu.slices, next) << 8;
      m.next_pc = NOT_FETCHED;
      m.bank = bank_start(cpu.slices);
      break;
    }
    case RTI: {
      set_status(cpu, pull(m));
      u32 low = pull(m);
      cpu.pc = low | pull(m) << 8;
      break;
    }
    case BRK: {
      push(m, (cpu.pc + 1) >> 8);
      push(m, cpu.pc + 1);
      push(m, status(cpu));
      cpu.interrupt = 1;
      u32 low = fetch_byte(m.console, m.game, cpu.slices, 0xfffe);
      cpu.pc = low | (u32)fetch_byte(m.console, m.game, cpu.slices, 0xffff) << 8;
      m.next_pc = NOT_FETCHED;
      m.bank = bank_start(cpu.slices);
      break;
    }
    default: cpu.pc = (cpu.pc - 1) & 0xffff;  // KIL: the processor hangs
  }
  return value;
}

// A loop of two instructions that waits for the timer: go to its last turns at once.
EVERYWHERE void skip_waiting(Machine &m, u64 load, u32 address, u32 start) {
  if (m.next_pc != m.cpu.pc) return;
  u32 control = control_of(load), operation = operation_of(m.next);
  bool goes_back = (operand_of(m.next) & 0xff) == 0x100 - length_of(control) - 2;
  if (!(control_of(m.next) & OTHER) || operation < BPL || !goes_back) return;
  u32 after = m.cpu.pc + 2;
  u32 period = cycles_of(control) + cycles_of(control_of(m.next));
  period += ((start ^ after) & 0xff00) ? 2 : 1;
  u32 turns = turns_of_waiting(m.console.riot, m.cpu.cycle, load, address & 1, operation, period);
  if (2 * turns >= (u32)m.instructions) return;
  m.instructions -= 2 * turns;
  m.cpu.cycle += turns * period;
}

// Where an instruction accesses memory; counts the cycles of leaving a page.
EVERYWHERE u32 find_address(Machine &m, u32 control, u32 operand, u32 &bus, u32 &cycles) {
  u32 index = byte_at(m.cpu.registers, 0, control >> INDEX_SHIFT);
  u32 address = (operand + index) & (control & IN_ZERO_PAGE ? 0xff : 0xffff);
  u32 crossed = (operand & 0xff) + index;
  if (RARELY(control & INDIRECT)) {  // without IN_ZERO_PAGE, the index counts after the pointer
    u32 pointer = control & IN_ZERO_PAGE ? address : operand;
    u32 target = read_pointer(m, bus, pointer);
    if (control & IN_ZERO_PAGE) index = 0;
    bus = target >> 8;
    address = (target + index) & 0xffff;
    crossed = (target & 0xff) + index;
  }
  if (control & CROSSING_COSTS && crossed > 0xff) cycles++;
  return address;
}

EVERYWHERE u32 stack_address(Machine &m, u32 operation, u32 &bus) {
  bool pulls = operation == PLA || operation == PLP;
  u32 before = stack_pointer(m.cpu);
  // The stack is read once before it moves.
  if (pulls && before & 0x80) bus = m.console.ram[before & 127];
  move_stack(m.cpu, pulls ? 1 : -1);
  return 0x100 | (pulls ? stack_pointer(m.cpu) : before);
}

// The TIA or the RIOT is read, at the end of an instruction that began at `start`. Returns false if
// collisions are asked for that are not latched yet.
EVERYWHERE bool read_chip(Machine &m, u64 word, u32 start, u32 address, u32 bus, u32 &value) {
  Frame &frame = m.console.frame;
  if (!is_tia(address)) {
    if (is_riot(address) && address & 4) skip_waiting(m, word, address, start);
    value = read_riot(m.console, address, m.cpu.cycle);
    return true;
  }
  frame.last_access = record_of(frame_clock(m), VSYNC, 0);
  if ((address & 15) < 8) {
    reach(frame, m.console.tia, m.recording, frame_clock(m));
    if (has_pending_collisions(frame, m.game)) return false;
  }
  value = read_tia(m.console, m.cpu.cycle, bus, address);
  return true;
}

// Run one instruction, or stop before it where it reads collisions that are not latched yet.
EVERYWHERE void step_processor(Machine &m) {
  Processor &cpu = m.cpu;
  const u64 word = fetch(m);
  const u32 pc = cpu.pc, registers = cpu.registers;
  const u32 control = control_of(word), length = length_of(control), operation = operation_of(word);
  u32 operand = operand_of(word), cycles = cycles_of(control), address = operand;
  u32 bus = (operand >> (length == 3 ? 8 : 0)) & 0xff;
  cpu.pc = (pc + length) & 0xffff;
  fetch_in_advance(m, cpu.pc);
  m.instructions--;
  if (control & OTHER) {
    if (USUALLY(operation >= BPL)) {
      cpu.cycle += cycles;
      branch(cpu, operation, operand);
      return;
    }
    if (operation == PHA || operation == PHP || operation == PLA || operation == PLP)
      address = stack_address(m, operation, bus);
    else
      address = find_address(m, control, operand, bus, cycles);
  } else if (control & (READS | WRITES)) {
    address = find_address(m, control, operand, bus, cycles);
  }
  cpu.cycle += cycles;

  operand &= 0xff;
  if (control & READS) {
    if (USUALLY(is_ram(address))) {
      operand = m.console.ram[address & 127];
    } else if (USUALLY(is_cartridge(address))) {
      operand = read_cartridge(m, address);
    } else if (!read_chip(m, word, pc, address, bus, operand)) {
      m.console.frame.waiting = 1;
      m.stopped = true;
      cpu.pc = pc;
      cpu.registers = registers;
      cpu.cycle -= cycles;
      m.instructions++;
      return;
    }
  }
  u32 value = RARELY(control & OTHER) ? execute_other(m, operation, address, operand)
                              : execute_formula(cpu, word, operand);
  if (control & WRITES) {
    write(m, address, (u8)value);
  }
}

}  // namespace atari2600
