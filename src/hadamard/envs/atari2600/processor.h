// The 6507. Every access of an instruction happens at its end: the whole cycle count is charged
// first. That, and the values on the data bus, are ALE's timing.
#pragma once
#include "cartridge.h"
#include "recording.h"
#include "riot.h"

namespace atari2600 {

// A console that is running, with what every instruction needs at hand.
struct Machine {
  Processor cpu;
  const u32 *program;
  const u8 *rom;
  i32 cartridge;
  u32 first_cycle;  // of the frame
  i32 instructions;  // left
  bool stopped;
  Console &console;
  const Game &game;
  Recording &recording;
};

// ------------------------------------------------------------------ memory

EVERYWHERE bool is_cartridge(u32 address) { return address & 0x1000; }
EVERYWHERE bool is_tia(u32 address) { return !(address & 0x1080); }
EVERYWHERE bool is_riot(u32 address) { return (address & 0x1280) == 0x0280; }

EVERYWHERE i32 frame_clock(const Machine &m) {
  return CLOCKS_PER_CYCLE * (i32)(m.cpu.cycle - m.first_cycle);
}

EVERYWHERE u8 read_cartridge(Machine &m, u32 address) {
  touch_cartridge(m.cpu.slices, m.cartridge, address);
  return m.rom[place_in_rom(m.cpu.slices, m.cartridge, address)];
}

// A byte of the program, which may switch banks but is never in the TIA or the RIOT.
EVERYWHERE u8 fetch(Machine &m, u32 address) {
  if (is_cartridge(address)) return read_cartridge(m, address);
  return (address & 0x280) == 0x80 ? m.console.ram[address & 127] : 0;
}

EVERYWHERE u8 read(Machine &m, u32 address) {
  if (is_cartridge(address)) return read_cartridge(m, address);
  if ((address & 0x280) == 0x80) return m.console.ram[address & 127];
  if (is_tia(address)) return read_tia(m.console, m.cpu, address);
  return read_riot(m.console, address, m.cpu.cycle);
}

// Pointers in the zero page.
EVERYWHERE u8 read_zero_page(const Machine &m, u32 address) {
  return address & 0x80 ? m.console.ram[address & 127] : read_tia(m.console, m.cpu, address);
}

// The part of a write to the TIA that the processor notices: the frame's end, the paddles, WSYNC.
enum { LAST_LINE = 290, SHORTEST_SYNC = CYCLES_PER_LINE };

EVERYWHERE void end_frame(Machine &m) {
  Frame &frame = m.console.frame;
  reach(frame, m.console.tia, m.recording, frame_clock(m));
  frame.done = 1;
  frame.unfinished = 0;
  m.stopped = true;
}

EVERYWHERE void write_timing(Machine &m, u32 reg, u8 value) {
  Frame &frame = m.console.frame;
  Controls &controls = m.console.controls;
  u32 cycle = m.cpu.cycle, elapsed = cycle - m.first_cycle;
  if (elapsed >= (LAST_LINE + 1) * CYCLES_PER_LINE) end_frame(m);
  if (reg == WSYNC) {
    u32 phase = elapsed % CYCLES_PER_LINE;
    if (phase) m.cpu.cycle += CYCLES_PER_LINE - phase;
  } else if (reg == VSYNC) {
    if (value & 2) {
      frame.sync_end = cycle + SHORTEST_SYNC;
    } else if (frame.sync_end && (i32)(cycle - frame.sync_end) >= 0) {
      frame.sync_end = 0;
      end_frame(m);
    }
  } else if (reg == VBLANK) {
    if (controls.discharging && !(value & 0x80))
      controls.discharge_cycle = cycle;  // the paddles' capacitors charge from here
    controls.discharging = value >> 7;
  }
}

EVERYWHERE void write(Machine &m, u32 address, u8 value) {
  if (is_tia(address)) {
    u32 reg = address & 0x3f;
    write_recorded(m.console, m.game, m.recording, reg, value, frame_clock(m));
    write_timing(m, reg, value);
  } else if (is_cartridge(address)) {
    touch_cartridge(m.cpu.slices, m.cartridge, address);
  } else if (is_riot(address)) {
    write_riot(m.console.riot, address, value, m.cpu.cycle);
  } else {
    m.console.ram[address & 127] = value;
  }
}

// The stack of a subroutine or an interrupt is in RAM.
EVERYWHERE void push(Machine &m, u32 value) {
  m.console.ram[m.cpu.s & 127] = (u8)value;
  m.cpu.s--;
}
EVERYWHERE u32 pull(Machine &m) {
  m.cpu.s++;
  return m.console.ram[m.cpu.s & 127];
}

// ------------------------------------------------------------------ flags and arithmetic

EVERYWHERE u8 status(const Processor &cpu) {  // bits 5 and 4 are always set
  return (u8)((cpu.negative & 0x80) | cpu.overflow << 6 | 0x30 | cpu.decimal << 3 |
              cpu.interrupt << 2 | (cpu.nonzero == 0) << 1 | cpu.carry);
}
EVERYWHERE void set_status(Processor &cpu, u8 value) {
  cpu.negative = value;
  cpu.overflow = value >> 6 & 1;
  cpu.decimal = value >> 3 & 1;
  cpu.interrupt = value >> 2 & 1;
  cpu.nonzero = !(value >> 1 & 1);
  cpu.carry = value & 1;
}

EVERYWHERE void set_flags(Processor &cpu, u8 value) { cpu.negative = cpu.nonzero = value; }

// The two digits of a byte, as a number; a digit of ten or more carries.
EVERYWHERE i32 from_decimal(u32 byte) { return (i32)((byte >> 4) * 10 + (byte & 15)); }
EVERYWHERE u8 to_decimal(i32 number) { return (u8)(number / 10 % 10 << 4 | number % 10); }

EVERYWHERE void add(Processor &cpu, u8 operand) {
  u8 before = cpu.a;
  if (cpu.decimal) {
    i32 sum = from_decimal(before) + from_decimal(operand) + cpu.carry;
    cpu.a = to_decimal(sum);
    cpu.carry = sum > 99;
    // Overflow compares the decimal result with both numbers, as in binary.
    cpu.overflow = ((before ^ cpu.a) & (operand ^ cpu.a)) >> 7;
  } else {
    u32 sum = (u32)before + operand + cpu.carry;
    cpu.a = (u8)sum;
    cpu.carry = (u8)(sum >> 8);
    cpu.overflow = ((before ^ cpu.a) & (operand ^ cpu.a)) >> 7;
  }
  set_flags(cpu, cpu.a);
}

EVERYWHERE void subtract(Processor &cpu, u8 operand) {
  u8 before = cpu.a, borrow = !cpu.carry;
  if (cpu.decimal) {
    i32 difference = from_decimal(before) - from_decimal(operand) - borrow;
    cpu.a = to_decimal(difference < 0 ? difference + 100 : difference);
    cpu.carry = before >= operand + borrow;
    cpu.overflow = ((before ^ cpu.a) & (operand ^ cpu.a)) >> 7;
  } else {
    u32 difference = (u32)before - operand - borrow;
    cpu.a = (u8)difference;
    cpu.carry = !(difference >> 8 & 1);
    cpu.overflow = ((before ^ operand) & (before ^ cpu.a)) >> 7;
  }
  set_flags(cpu, cpu.a);
}

EVERYWHERE void compare(Processor &cpu, u8 value, u8 operand) {
  cpu.carry = value >= operand;
  set_flags(cpu, (u8)(value - operand));
}

EVERYWHERE u8 shift_left(Processor &cpu, u8 value, u8 carry_in) {
  cpu.carry = value >> 7;
  return (u8)(value << 1 | carry_in);
}
EVERYWHERE u8 shift_right(Processor &cpu, u8 value, u8 carry_in) {
  cpu.carry = value & 1;
  return (u8)(value >> 1 | carry_in << 7);
}

// ------------------------------------------------------------------ instructions

// What an instruction that only stores will store.
EVERYWHERE u8 stored_value(const Processor &cpu, u32 operation, u32 address) {
  u8 page_after = (u8)((address >> 8) + 1);
  switch (operation) {
    case STA: case PHA: return cpu.a;
    case STX: return cpu.x;
    case STY: return cpu.y;
    case SAX: return cpu.a & cpu.x;
    case SHX: return cpu.x & page_after;
    case SHY: return cpu.y & page_after;
    case SHA: return cpu.a & cpu.x & page_after;
    default: return status(cpu);  // PHP
  }
}

EVERYWHERE void branch(Processor &cpu, u32 operation, u8 offset) {
  u32 which = operation - BPL, flag;
  switch (which >> 1) {
    case 0: flag = cpu.negative >> 7; break;
    case 1: flag = cpu.overflow; break;
    case 2: flag = cpu.carry; break;
    default: flag = cpu.nonzero == 0;
  }
  if (flag != (which & 1)) return;
  u32 target = (cpu.pc + (i8)offset) & 0xffff;
  cpu.cycle += ((target ^ cpu.pc) & 0xff00) ? 2 : 1;
  cpu.pc = (u16)target;
}

// Do the instruction; returns what it stores, if it does.
EVERYWHERE u8 execute(Machine &m, u32 operation, u32 address, u8 operand) {
  Processor &cpu = m.cpu;
  u8 value = operand;
  switch (operation) {
    case LDA: cpu.a = value; set_flags(cpu, value); break;
    case LDX: cpu.x = value; set_flags(cpu, value); break;
    case LDY: cpu.y = value; set_flags(cpu, value); break;
    case LAX: cpu.a = cpu.x = value; set_flags(cpu, value); break;
    case ADC: add(cpu, value); break;
    case SBC: subtract(cpu, value); break;
    case AND: cpu.a &= value; set_flags(cpu, cpu.a); break;
    case ORA: cpu.a |= value; set_flags(cpu, cpu.a); break;
    case EOR: cpu.a ^= value; set_flags(cpu, cpu.a); break;
    case CMP: compare(cpu, cpu.a, value); break;
    case CPX: compare(cpu, cpu.x, value); break;
    case CPY: compare(cpu, cpu.y, value); break;
    case BIT:
      cpu.nonzero = cpu.a & value;
      cpu.negative = value;
      cpu.overflow = value >> 6 & 1;
      break;
    case ANC: cpu.a &= value; set_flags(cpu, cpu.a); cpu.carry = cpu.a >> 7; break;
    case ALR: cpu.a = shift_right(cpu, cpu.a & value, 0); set_flags(cpu, cpu.a); break;
    case ARR:
      cpu.a = (u8)((cpu.a & value) >> 1 | cpu.carry << 7);
      cpu.carry = cpu.a >> 6 & 1;
      cpu.overflow = (cpu.a >> 6 ^ cpu.a >> 5) & 1;
      set_flags(cpu, cpu.a);
      break;
    case SBX: {
      u8 both = cpu.a & cpu.x;
      compare(cpu, both, value);
      cpu.x = (u8)(both - value);
      break;
    }
    case XAA: cpu.a = cpu.x & value; set_flags(cpu, cpu.a); break;
    case LXA: cpu.a = cpu.x = (cpu.a | 0xee) & value; set_flags(cpu, cpu.a); break;
    case LAS: cpu.a = cpu.x = cpu.s = value & cpu.s; set_flags(cpu, cpu.a); break;

    case STA: case STX: case STY: case SAX: case SHX: case SHY: case SHA: case PHA: case PHP:
      value = stored_value(cpu, operation, address);
      break;

    case ASL: value = shift_left(cpu, value, 0); set_flags(cpu, value); break;
    case LSR: value = shift_right(cpu, value, 0); set_flags(cpu, value); break;
    case ROL: value = shift_left(cpu, value, cpu.carry); set_flags(cpu, value); break;
    case ROR: value = shift_right(cpu, value, cpu.carry); set_flags(cpu, value); break;
    case INC: value++; set_flags(cpu, value); break;
    case DEC: value--; set_flags(cpu, value); break;
    case SLO: value = shift_left(cpu, value, 0); cpu.a |= value; set_flags(cpu, cpu.a); break;
    case SRE: value = shift_right(cpu, value, 0); cpu.a ^= value; set_flags(cpu, cpu.a); break;
    case RLA: value = shift_left(cpu, value, cpu.carry); cpu.a &= value; set_flags(cpu, cpu.a); break;
    case RRA: value = shift_right(cpu, value, cpu.carry); add(cpu, value); break;
    case ISB: value++; subtract(cpu, value); break;
    case DCP: value--; compare(cpu, cpu.a, value); break;

    case PLA: cpu.a = value; set_flags(cpu, value); break;
    case PLP: set_status(cpu, value); break;
    case TAX: cpu.x = cpu.a; set_flags(cpu, cpu.x); break;
    case TXA: cpu.a = cpu.x; set_flags(cpu, cpu.a); break;
    case TAY: cpu.y = cpu.a; set_flags(cpu, cpu.y); break;
    case TYA: cpu.a = cpu.y; set_flags(cpu, cpu.a); break;
    case TSX: cpu.x = cpu.s; set_flags(cpu, cpu.x); break;
    case TXS: cpu.s = cpu.x; break;
    case INX: cpu.x++; set_flags(cpu, cpu.x); break;
    case INY: cpu.y++; set_flags(cpu, cpu.y); break;
    case DEX: cpu.x--; set_flags(cpu, cpu.x); break;
    case DEY: cpu.y--; set_flags(cpu, cpu.y); break;
    case ASA: cpu.a = shift_left(cpu, cpu.a, 0); set_flags(cpu, cpu.a); break;
    case LSA: cpu.a = shift_right(cpu, cpu.a, 0); set_flags(cpu, cpu.a); break;
    case RLC: cpu.a = shift_left(cpu, cpu.a, cpu.carry); set_flags(cpu, cpu.a); break;
    case RRC: cpu.a = shift_right(cpu, cpu.a, cpu.carry); set_flags(cpu, cpu.a); break;
    case CLC: cpu.carry = 0; break;
    case SEC: cpu.carry = 1; break;
    case CLI: cpu.interrupt = 0; break;
    case SEI: cpu.interrupt = 1; break;
    case CLV: cpu.overflow = 0; break;
    case CLD: cpu.decimal = 0; break;
    case SED: cpu.decimal = 1; break;
    case BPL: case BMI: case BVC: case BVS: case BCC: case BCS: case BNE: case BEQ:
      branch(cpu, operation, operand);
      break;
    case JMP: cpu.pc = (u16)address; break;
    case JMI: {  // the pointer does not cross a page
      u32 next = (address & 0xff00) | ((address + 1) & 0xff);
      u32 low = fetch(m, address);
      cpu.pc = (u16)(low | fetch(m, next) << 8);
      break;
    }
    case JSR:
      push(m, (u32)(cpu.pc - 1) >> 8);
      push(m, (u32)(cpu.pc - 1));
      cpu.pc = (u16)address;
      break;
    case RTS: {
      u32 low = pull(m);
      cpu.pc = (u16)((low | pull(m) << 8) + 1);
      break;
    }
    case RTI: {
      set_status(cpu, (u8)pull(m));
      u32 low = pull(m);
      cpu.pc = (u16)(low | pull(m) << 8);
      break;
    }
    case BRK: {
      push(m, (u32)(cpu.pc + 1) >> 8);
      push(m, (u32)(cpu.pc + 1));
      push(m, status(cpu));
      cpu.interrupt = 1;
      u32 low = fetch(m, 0xfffe);
      cpu.pc = (u16)(low | fetch(m, 0xffff) << 8);
      break;
    }
    case KIL: cpu.pc--; break;  // the processor hangs
    default: break;             // NOP, NOR
  }
  return value;
}

// The decoded instruction at the program counter.
EVERYWHERE u32 next_instruction(Machine &m) {
  u32 pc = m.cpu.pc;
  if (is_plain_code(m.cartridge, pc))
    return m.program[place_in_rom(m.cpu.slices, m.cartridge, pc)];
  u8 opcode = fetch(m, pc), low = 0, high = 0;
  u32 length = length_of_mode(mode_of(decode(opcode, 0, 0)));
  if (length > 1) low = fetch(m, (pc + 1) & 0xffff);
  if (length > 2) high = fetch(m, (pc + 2) & 0xffff);
  return decode(opcode, low, high);
}

// A loop of two instructions that waits for the timer: go to its last turns at once.
EVERYWHERE void skip_waiting(Machine &m, u32 load, u32 address, u32 start) {
  if (!is_plain_code(m.cartridge, start)) return;
  u32 length = length_of_mode(mode_of(load));
  u32 next = m.program[place_in_rom(m.cpu.slices, m.cartridge, m.cpu.pc)];
  if (mode_of(next) != REL || (next & 0xff) != 0x100 - length - 2) return;
  u32 after = m.cpu.pc + 2;
  u32 period = cycles_of(load) + cycles_of(next) + (((start ^ after) & 0xff00) ? 2 : 1);
  u32 turns = turns_of_waiting(m.console.riot, m.cpu.cycle, operation_of(load), address & 1,
                               operation_of(next), period);
  if (2 * turns >= (u32)m.instructions) return;
  m.instructions -= 2 * turns;
  m.cpu.cycle += turns * period;
}

// Run one instruction, or stop before it where it reads collisions that are not latched yet.
EVERYWHERE void step_processor(Machine &m) {
  Processor &cpu = m.cpu;
  u32 pc = cpu.pc, word = next_instruction(m);
  u32 operation = operation_of(word), mode = mode_of(word), cycles = cycles_of(word);
  u32 operand16 = word & 0xffff, length = length_of_mode(mode);
  u8 low = (u8)operand16, bus = (u8)(length == 3 ? operand16 >> 8 : operand16), s = cpu.s;
  cpu.pc = (u16)(pc + length);

  u32 address = 0x1000;  // not the TIA
  switch (mode) {
    case ZPG: case ABS: address = operand16; break;
    case ZPX: address = (low + cpu.x) & 0xff; break;
    case ZPY: address = (low + cpu.y) & 0xff; break;
    case ABX: case ABY: {
      u32 index = mode == ABX ? cpu.x : cpu.y;
      address = (operand16 + index) & 0xffff;
      if (crossing_costs(word) && low + index > 0xff) cycles++;
      break;
    }
    case INX_: case INY_: {
      u32 pointer = mode == INX_ ? (low + cpu.x) & 0xff : low;
      u32 index = mode == INX_ ? 0 : cpu.y;
      u32 target_low = read_zero_page(m, pointer);
      bus = read_zero_page(m, (pointer + 1) & 0xff);
      address = ((target_low | bus << 8) + index) & 0xffff;
      if (crossing_costs(word) && target_low + index > 0xff) cycles++;
      break;
    }
    default: break;
  }
  if (operation == PHA || operation == PHP) {
    address = 0x100 | cpu.s;
    cpu.s--;
  } else if (operation == PLA || operation == PLP) {
    if (cpu.s & 0x80) bus = m.console.ram[cpu.s & 127];  // the stack is read once before it moves
    cpu.s++;
    address = 0x100 | cpu.s;
  }
  cpu.cycle += cycles;

  u8 operand = low;
  if (word & READS) {
    if (is_tia(address) && (address & 15) < 8) {
      Frame &frame = m.console.frame;
      reach(frame, m.console.tia, m.recording, frame_clock(m));
      if (has_pending_collisions(frame, m.game)) {
        frame.waiting = 1;
        m.stopped = true;
        cpu.pc = (u16)pc;
        cpu.s = s;
        cpu.cycle -= cycles;
        return;
      }
    } else if (is_riot(address) && address & 4 && mode == ABS) {
      skip_waiting(m, word, address, pc);
    }
    cpu.bus = bus;
    operand = bus = read(m, address);
  }
  u8 value = execute(m, operation, address, operand);
  if (word & WRITES) {
    bus = value;
    write(m, address, value);
  }
  cpu.bus = bus;
  m.instructions--;
}

// Run until the frame ends, ALE stops or collisions are needed.
EVERYWHERE void run_processor(Console &console, const Game &game, Recording &recording) {
  Frame &frame = console.frame;
  Machine m = {console.cpu, game.program, game.rom, game.cartridge, frame.first_cycle,
               frame.instructions, false, console, game, recording};
  frame.waiting = 0;
  while (m.instructions > 0 && !m.stopped) step_processor(m);
  console.cpu = m.cpu;
  frame.instructions = m.instructions;
  end_recording(frame, recording);
}

}  // namespace atari2600
