// The 6507. Every access of an instruction happens at its end: the whole cycle count is charged
// first. That, and the values on the data bus, are ALE's timing.
#pragma once
#include "cartridge.h"
#include "opcodes.h"
#include "riot.h"
#include "tia.h"

namespace atari2600 {

// ------------------------------------------------------------------ memory

EVERYWHERE bool is_cartridge(u32 address) { return address & 0x1000; }
EVERYWHERE bool is_tia(u32 address) { return !(address & 0x1080); }
EVERYWHERE bool is_riot(u32 address) { return (address & 0x1280) == 0x0280; }

// A byte of the program, which may switch banks but is never in the TIA or the RIOT.
EVERYWHERE u8 fetch(Console &console, const Game &game, u32 address) {
  if (is_cartridge(address)) {
    touch_cartridge(console, game, address);
    return cartridge_byte(console, game, address);
  }
  return (address & 0x280) == 0x80 ? console.ram[address & 127] : 0;
}

EVERYWHERE u8 read(Console &console, const Game &game, u32 address) {
  if (is_cartridge(address)) {
    touch_cartridge(console, game, address);
    return cartridge_byte(console, game, address);
  }
  if (is_tia(address)) return read_tia(console, address);
  if (is_riot(address)) return read_riot(console, address);
  return console.ram[address & 127];
}

// Writes to the TIA expect the line to be drawn up to where the write shows.
EVERYWHERE void write(Console &console, const Game &game, u32 address, u8 value) {
  if (is_cartridge(address)) {
    touch_cartridge(console, game, address);
  } else if (is_tia(address)) {
    u32 reg = address & 0x3f;
    write_beam(console.tia, game, reg, value, frame_clock(console));
    write_timing(console, reg, value);
  } else if (is_riot(address)) {
    write_riot(console, address, value);
  } else {
    console.ram[address & 127] = value;
  }
}

// Pointers in the zero page.
EVERYWHERE u8 read_zero_page(const Console &console, u32 address) {
  return address & 0x80 ? console.ram[address & 127] : read_tia(console, address);
}

// The stack of a subroutine or an interrupt is in RAM.
EVERYWHERE void push(Console &console, u32 value) {
  console.ram[console.cpu.s & 127] = (u8)value;
  console.cpu.s--;
}
EVERYWHERE u32 pull(Console &console) {
  console.cpu.s++;
  return console.ram[console.cpu.s & 127];
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

EVERYWHERE void branch(Processor &cpu, u32 opcode, u8 offset) {
  u32 flag;
  switch (opcode >> 6) {
    case 0: flag = cpu.negative >> 7; break;
    case 1: flag = cpu.overflow; break;
    case 2: flag = cpu.carry; break;
    default: flag = cpu.nonzero == 0;
  }
  if (flag != (opcode >> 5 & 1)) return;
  u32 target = (cpu.pc + (i8)offset) & 0xffff;
  cpu.cycle += ((target ^ cpu.pc) & 0xff00) ? 2 : 1;
  cpu.pc = (u16)target;
}

// Do the instruction; returns what it stores, if it does.
EVERYWHERE u8 execute(Console &console, const Game &game, u32 operation, u32 opcode, u32 address,
                      u8 operand) {
  Processor &cpu = console.cpu;
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
    case BRA: branch(cpu, opcode, operand); break;
    case JMP: cpu.pc = (u16)address; break;
    case JMI: {  // the pointer does not cross a page
      u32 next = (address & 0xff00) | ((address + 1) & 0xff);
      u32 low = fetch(console, game, address);
      cpu.pc = (u16)(low | fetch(console, game, next) << 8);
      break;
    }
    case JSR:
      push(console, (u32)(cpu.pc - 1) >> 8);
      push(console, (u32)(cpu.pc - 1));
      cpu.pc = (u16)address;
      break;
    case RTS: {
      u32 low = pull(console);
      cpu.pc = (u16)((low | pull(console) << 8) + 1);
      break;
    }
    case RTI: {
      set_status(cpu, (u8)pull(console));
      u32 low = pull(console);
      cpu.pc = (u16)(low | pull(console) << 8);
      break;
    }
    case BRK: {
      push(console, (u32)(cpu.pc + 1) >> 8);
      push(console, (u32)(cpu.pc + 1));
      push(console, status(cpu));
      cpu.interrupt = 1;
      u32 low = fetch(console, game, 0xfffe);
      cpu.pc = (u16)(low | fetch(console, game, 0xffff) << 8);
      break;
    }
    case KIL: cpu.pc--; break;  // the processor hangs
    default: break;             // NOP, NOR
  }
  return value;
}

// Run one instruction, and draw the beam up to where it writes to the TIA or reads collisions.
EVERYWHERE void step_processor(Console &console, const Game &game, u8 *screen) {
  Processor &cpu = console.cpu;
  u32 pc = cpu.pc;
  u8 opcode = fetch(console, game, pc);
  u32 word = game.opcodes[opcode];
  u32 operation = word & 0xff, mode = word >> MODE_SHIFT & 15;
  u32 cycles = word >> CYCLES_SHIFT & 15, length = word >> LENGTH_SHIFT & 3;
  u8 low = fetch(console, game, (pc + 1) & 0xffff), high = 0;
  if (length == 3) high = fetch(console, game, (pc + 2) & 0xffff);
  cpu.pc = (u16)(pc + length);
  u8 bus = length == 3 ? high : length == 2 ? low : opcode;

  u32 address = 0x1000;  // not the TIA
  switch (mode) {
    case ZPG: address = low; break;
    case ZPX: address = (low + cpu.x) & 0xff; break;
    case ZPY: address = (low + cpu.y) & 0xff; break;
    case ABS: address = low | high << 8; break;
    case ABX: case ABY: {
      u32 index = mode == ABX ? cpu.x : cpu.y;
      address = ((low | high << 8) + index) & 0xffff;
      if (word & CROSSING_COSTS && low + index > 0xff) cycles++;
      break;
    }
    case INX_: case INY_: {
      u32 pointer = mode == INX_ ? (low + cpu.x) & 0xff : low;
      u32 index = mode == INX_ ? 0 : cpu.y;
      u32 target_low = read_zero_page(console, pointer);
      bus = read_zero_page(console, (pointer + 1) & 0xff);
      address = ((target_low | bus << 8) + index) & 0xffff;
      if (word & CROSSING_COSTS && target_low + index > 0xff) cycles++;
      break;
    }
    default: break;
  }
  if (operation == PHA || operation == PHP) {
    address = 0x100 | cpu.s;
    cpu.s--;
  } else if (operation == PLA || operation == PLP) {
    if (cpu.s & 0x80) bus = console.ram[cpu.s & 127];  // the stack is read once before it moves
    cpu.s++;
    address = 0x100 | cpu.s;
  }
  bool reads = word & READS && mode != IMM, writes = word & WRITES;
  cpu.cycle += cycles;

  if ((reads || writes) && is_tia(address)) {
    i32 clock = frame_clock(console);
    bool noticed = reads && (address & 15) < 8;
    if (writes) {
      u32 reg = address & 0x3f;
      noticed = reads || changes_the_line(console.tia, reg, stored_value(cpu, operation, address),
                                          screen != nullptr);
      clock += write_delay(console.tia, reg, clock);
    }
    if (noticed) catch_up(console.tia, game, screen, clock);
  }
  u8 operand = low;
  if (reads) {
    cpu.bus = bus;
    operand = bus = read(console, game, address);
  }
  u8 value = execute(console, game, operation, opcode, address, operand);
  if (writes) {
    bus = value;
    write(console, game, address, value);
  }
  cpu.bus = bus;
}

}  // namespace atari2600
