// Instructions as the processor reads them: one word of 64 bits for each byte of the ROM at which an
// instruction may begin. Most instructions are one formula whose parts the word chooses, so that they
// need no branches, which are dear on a GPU: first + (second ^ inverted) + carry, or a bit operation
// of the two, or a shift of the second, goes to registers or to memory.
#pragma once
#include "opcodes.h"

namespace atari2600 {

// Bytes of the processor's registers, and what else can be a part of the formula.
enum Source { A, X, Y, S, OPERAND, ZERO };

// The lower half: the operand in bits 0 to 15; above it `to`, or the operation if it is OTHER.
enum { TO_SHIFT = 16 };

// For each byte of the registers, where it comes from afterwards: itself, or the result.
enum To {
  NOWHERE = 0x3210, TO_A = 0x3214, TO_X = 0x3240, TO_Y = 0x3410, TO_S = 0x4210, TO_A_X = 0x3244,
};

// The upper half.
enum Control : u32 {
  FIRST_SHIFT = 0, SECOND_SHIFT = 4, INDEX_SHIFT = 8,
  INVERTED = 1 << 12,
  CARRY_ONE = 1 << 13, CARRY_FLAG = 1 << 14,
  ANDED = 1 << 15, XORED = 1 << 16,  // both: OR
  SHIFTED = 1 << 17,
  SETS_ZERO = 1 << 18, SETS_CARRY = 1 << 19, SETS_OVERFLOW = 1 << 20,
  READS = 1 << 21, WRITES = 1 << 22,
  IN_ZERO_PAGE = 1 << 23, INDIRECT = 1 << 24,
  CROSSING_COSTS = 1 << 25,  // another cycle when the index leaves the page
  LENGTH_SHIFT = 26, CYCLES_SHIFT = 28,
  OTHER = 1u << 31,  // not of the formula
};
enum { LEAST_CYCLES = 1 };

EVERYWHERE u32 operand_of(u64 word) { return (u32)word & 0xffff; }
EVERYWHERE u32 control_of(u64 word) { return (u32)(word >> 32); }
EVERYWHERE u32 operation_of(u64 word) { return (u32)word >> TO_SHIFT; }
EVERYWHERE u32 length_of(u32 control) { return control >> LENGTH_SHIFT & 3; }
EVERYWHERE u32 cycles_of(u32 control) { return (control >> CYCLES_SHIFT & 7) + LEAST_CYCLES; }

// The formula of an operation: its control bits, and where the result goes.
EVERYWHERE u32 formula(u32 operation, u32 &to) {
  const u32 zero = ZERO << FIRST_SHIFT, nothing = ZERO << SECOND_SHIFT;
  const u32 operand = OPERAND << SECOND_SHIFT, twice = OPERAND << FIRST_SHIFT | operand;
  const u32 a = A << FIRST_SHIFT, x = X << FIRST_SHIFT, y = Y << FIRST_SHIFT;
  const u32 minus = INVERTED | CARRY_ONE | SETS_ZERO | SETS_CARRY;
  const u32 sets_all = SETS_ZERO | SETS_CARRY | SETS_OVERFLOW;
  const u32 shifts = SETS_ZERO | SETS_CARRY;
  to = NOWHERE;
  switch (operation) {
    case LDA: to = TO_A; return zero | operand | SETS_ZERO;
    case LDX: to = TO_X; return zero | operand | SETS_ZERO;
    case LDY: to = TO_Y; return zero | operand | SETS_ZERO;
    case LAX: to = TO_A_X; return zero | operand | SETS_ZERO;
    case ADC: to = TO_A; return a | operand | CARRY_FLAG | sets_all;
    case SBC: to = TO_A; return a | operand | INVERTED | CARRY_FLAG | sets_all;
    case AND: to = TO_A; return a | operand | ANDED | SETS_ZERO;
    case ORA: to = TO_A; return a | operand | ANDED | XORED | SETS_ZERO;
    case EOR: to = TO_A; return a | operand | XORED | SETS_ZERO;
    case CMP: return a | operand | minus;
    case CPX: return x | operand | minus;
    case CPY: return y | operand | minus;
    case STA: return a | nothing;
    case STX: return x | nothing;
    case STY: return y | nothing;
    case SAX: return a | X << SECOND_SHIFT | ANDED;
    case ASL: return twice | shifts;
    case ROL: return twice | CARRY_FLAG | shifts;
    case LSR: return operand | SHIFTED | shifts;
    case ROR: return operand | SHIFTED | CARRY_FLAG | shifts;
    case INC: return OPERAND << FIRST_SHIFT | nothing | CARRY_ONE | SETS_ZERO;
    case DEC: return OPERAND << FIRST_SHIFT | nothing | INVERTED | SETS_ZERO;
    case TAX: to = TO_X; return a | nothing | SETS_ZERO;
    case TXA: to = TO_A; return x | nothing | SETS_ZERO;
    case TAY: to = TO_Y; return a | nothing | SETS_ZERO;
    case TYA: to = TO_A; return y | nothing | SETS_ZERO;
    case TSX: to = TO_X; return S << FIRST_SHIFT | nothing | SETS_ZERO;
    case TXS: to = TO_S; return x | nothing;
    case INX: to = TO_X; return x | nothing | CARRY_ONE | SETS_ZERO;
    case INY: to = TO_Y; return y | nothing | CARRY_ONE | SETS_ZERO;
    case DEX: to = TO_X; return x | nothing | INVERTED | SETS_ZERO;
    case DEY: to = TO_Y; return y | nothing | INVERTED | SETS_ZERO;
    case ASA: to = TO_A; return a | A << SECOND_SHIFT | shifts;
    case RLC: to = TO_A; return a | A << SECOND_SHIFT | CARRY_FLAG | shifts;
    case LSA: to = TO_A; return A << SECOND_SHIFT | SHIFTED | shifts;
    case RRC: to = TO_A; return A << SECOND_SHIFT | SHIFTED | CARRY_FLAG | shifts;
    case NOP: case NOR: return zero | nothing;
    default: to = operation; return OTHER;
  }
}

// The operand of an instruction without one is its own opcode, which is then on the data bus.
EVERYWHERE u64 decode(u8 byte, u8 low, u8 high) {
  Opcode opcode = OPCODES[byte];
  u32 operation = opcode.operation, mode = opcode.mode, to;
  u32 length = mode == IMP ? 1 : mode == ABS || mode == ABX || mode == ABY ? 3 : 2;
  u32 operand = length == 1 ? byte : length == 2 ? low : low | (u32)high << 8;
  u32 control = formula(operation, to);
  control |= length << LENGTH_SHIFT | (u32)(opcode.cycles - LEAST_CYCLES) << CYCLES_SHIFT;
  bool only_reads = operation <= LAS, changes = operation >= ASL && operation <= DCP;
  if ((only_reads && mode != IMM) || changes || operation == PLA || operation == PLP)
    control |= READS;
  if (operation >= STA && operation <= DCP) control |= WRITES;
  u32 index = mode == ZPX || mode == ABX || mode == INX_ ? X : mode == ZPY || mode == ABY || mode == INY_ ? Y : ZERO;
  control |= index << INDEX_SHIFT;
  if (mode == ZPX || mode == ZPY || mode == INX_) control |= IN_ZERO_PAGE;
  if (mode == INX_ || mode == INY_) control |= INDIRECT;
  // Only instructions that do not store save the cycle when the index stays in the page.
  if (only_reads && (mode == ABX || mode == ABY || mode == INY_)) control |= CROSSING_COSTS;
  return (u64)control << 32 | to << TO_SHIFT | operand;
}

// The instruction at a place of the ROM.
EVERYWHERE u64 decode_at(const u8 *rom, u32 bytes, u32 place) {
  return decode(rom[place], rom[(place + 1) % bytes], rom[(place + 2) % bytes]);
}

// A byte of the registers (A, X, Y, S) or of `other` (from byte 4), and four of them.
EVERYWHERE u32 byte_at(u32 registers, u32 other, u32 place) {
#ifdef __CUDA_ARCH__
  return __byte_perm(registers, other, 0x5550 | (place & 15)) & 0xff;
#else
  return (u32)(((u64)other << 32 | registers) >> (8 * (place & 7))) & 0xff;
#endif
}
EVERYWHERE u32 with_result(u32 registers, u32 result, u32 to) {
#ifdef __CUDA_ARCH__
  return __byte_perm(registers, result, to);
#else
  u32 mask = (to & 0x4 ? 0xffu : 0) | (to & 0x40 ? 0xff00u : 0) | (to & 0x400 ? 0xff0000u : 0) |
             (to & 0x4000 ? 0xff000000u : 0);
  return (registers & ~mask) | (result * 0x01010101u & mask);
#endif
}

}  // namespace atari2600
