// The 6507's instructions: what each does, how it finds its operand, how many cycles it takes.
#pragma once
#include "types.h"

namespace atari2600 {

enum Mode { IMP, IMM, ZPG, ZPX, ZPY, ABS, ABX, ABY, INX_, INY_, REL };

enum Operation {
  // These read an operand.
  LDA, LDX, LDY, LAX, ADC, SBC, AND, ORA, EOR, CMP, CPX, CPY, BIT, NOR,  // NOR: reads, does nothing
  ANC, ALR, ARR, SBX, XAA, LXA, LAS,
  // These store.
  STA, STX, STY, SAX, SHX, SHY, SHA, PHA, PHP,
  // These read, change and store.
  ASL, LSR, ROL, ROR, INC, DEC, SLO, SRE, RLA, RRA, ISB, DCP,
  // The rest.
  PLA, PLP, TAX, TXA, TAY, TYA, TSX, TXS, INX, INY, DEX, DEY, ASA, LSA, RLC, RRC,  // of A
  CLC, SEC, CLI, SEI, CLV, CLD, SED, NOP, JMP, JMI, JSR, RTS, RTI, BRK, KIL,
  BPL, BMI, BVC, BVS, BCC, BCS, BNE, BEQ,
};

struct Opcode {
  u8 operation, mode, cycles;
};

// A row for each upper half of the opcode. The undocumented ones are used by a few games.
DEVICE_TABLE const Opcode OPCODES[256] = {
#define I(operation, mode, cycles) {operation, mode, cycles}
    // 00
    I(BRK, IMP, 7), I(ORA, INX_, 6), I(KIL, IMP, 2), I(SLO, INX_, 8), I(NOR, ZPG, 3), I(ORA, ZPG, 3), I(ASL, ZPG, 5), I(SLO, ZPG, 5),
    I(PHP, IMP, 3), I(ORA, IMM, 2), I(ASA, IMP, 2), I(ANC, IMM, 2), I(NOR, ABS, 4), I(ORA, ABS, 4), I(ASL, ABS, 6), I(SLO, ABS, 6),
    // 10
    I(BPL, REL, 2), I(ORA, INY_, 5), I(KIL, IMP, 2), I(SLO, INY_, 8), I(NOR, ZPX, 4), I(ORA, ZPX, 4), I(ASL, ZPX, 6), I(SLO, ZPX, 6),
    I(CLC, IMP, 2), I(ORA, ABY, 4), I(NOP, IMP, 2), I(SLO, ABY, 7), I(NOR, ABX, 4), I(ORA, ABX, 4), I(ASL, ABX, 7), I(SLO, ABX, 7),
    // 20
    I(JSR, ABS, 6), I(AND, INX_, 6), I(KIL, IMP, 2), I(RLA, INX_, 8), I(BIT, ZPG, 3), I(AND, ZPG, 3), I(ROL, ZPG, 5), I(RLA, ZPG, 5),
    I(PLP, IMP, 4), I(AND, IMM, 2), I(RLC, IMP, 2), I(ANC, IMM, 2), I(BIT, ABS, 4), I(AND, ABS, 4), I(ROL, ABS, 6), I(RLA, ABS, 6),
    // 30
    I(BMI, REL, 2), I(AND, INY_, 5), I(KIL, IMP, 2), I(RLA, INY_, 8), I(NOR, ZPX, 4), I(AND, ZPX, 4), I(ROL, ZPX, 6), I(RLA, ZPX, 6),
    I(SEC, IMP, 2), I(AND, ABY, 4), I(NOP, IMP, 2), I(RLA, ABY, 7), I(NOR, ABX, 4), I(AND, ABX, 4), I(ROL, ABX, 7), I(RLA, ABX, 7),
    // 40
    I(RTI, IMP, 6), I(EOR, INX_, 6), I(KIL, IMP, 2), I(SRE, INX_, 8), I(NOR, ZPG, 3), I(EOR, ZPG, 3), I(LSR, ZPG, 5), I(SRE, ZPG, 5),
    I(PHA, IMP, 3), I(EOR, IMM, 2), I(LSA, IMP, 2), I(ALR, IMM, 2), I(JMP, ABS, 3), I(EOR, ABS, 4), I(LSR, ABS, 6), I(SRE, ABS, 6),
    // 50
    I(BVC, REL, 2), I(EOR, INY_, 5), I(KIL, IMP, 2), I(SRE, INY_, 8), I(NOR, ZPX, 4), I(EOR, ZPX, 4), I(LSR, ZPX, 6), I(SRE, ZPX, 6),
    I(CLI, IMP, 2), I(EOR, ABY, 4), I(NOP, IMP, 2), I(SRE, ABY, 7), I(NOR, ABX, 4), I(EOR, ABX, 4), I(LSR, ABX, 7), I(SRE, ABX, 7),
    // 60
    I(RTS, IMP, 6), I(ADC, INX_, 6), I(KIL, IMP, 2), I(RRA, INX_, 8), I(NOR, ZPG, 3), I(ADC, ZPG, 3), I(ROR, ZPG, 5), I(RRA, ZPG, 5),
    I(PLA, IMP, 4), I(ADC, IMM, 2), I(RRC, IMP, 2), I(ARR, IMM, 2), I(JMI, ABS, 5), I(ADC, ABS, 4), I(ROR, ABS, 6), I(RRA, ABS, 6),
    // 70
    I(BVS, REL, 2), I(ADC, INY_, 5), I(KIL, IMP, 2), I(RRA, INY_, 8), I(NOR, ZPX, 4), I(ADC, ZPX, 4), I(ROR, ZPX, 6), I(RRA, ZPX, 6),
    I(SEI, IMP, 2), I(ADC, ABY, 4), I(NOP, IMP, 2), I(RRA, ABY, 7), I(NOR, ABX, 4), I(ADC, ABX, 4), I(ROR, ABX, 7), I(RRA, ABX, 7),
    // 80
    I(NOR, IMM, 2), I(STA, INX_, 6), I(NOR, IMM, 2), I(SAX, INX_, 6), I(STY, ZPG, 3), I(STA, ZPG, 3), I(STX, ZPG, 3), I(SAX, ZPG, 3),
    I(DEY, IMP, 2), I(NOR, IMM, 2), I(TXA, IMP, 2), I(XAA, IMM, 2), I(STY, ABS, 4), I(STA, ABS, 4), I(STX, ABS, 4), I(SAX, ABS, 4),
    // 90
    I(BCC, REL, 2), I(STA, INY_, 6), I(KIL, IMP, 2), I(SHA, INY_, 6), I(STY, ZPX, 4), I(STA, ZPX, 4), I(STX, ZPY, 4), I(SAX, ZPY, 4),
    I(TYA, IMP, 2), I(STA, ABY, 5), I(TXS, IMP, 2), I(SHA, ABY, 5), I(SHY, ABX, 5), I(STA, ABX, 5), I(SHX, ABY, 5), I(SHA, ABY, 5),
    // A0
    I(LDY, IMM, 2), I(LDA, INX_, 6), I(LDX, IMM, 2), I(LAX, INX_, 6), I(LDY, ZPG, 3), I(LDA, ZPG, 3), I(LDX, ZPG, 3), I(LAX, ZPG, 3),
    I(TAY, IMP, 2), I(LDA, IMM, 2), I(TAX, IMP, 2), I(LXA, IMM, 2), I(LDY, ABS, 4), I(LDA, ABS, 4), I(LDX, ABS, 4), I(LAX, ABS, 4),
    // B0
    I(BCS, REL, 2), I(LDA, INY_, 5), I(KIL, IMP, 2), I(LAX, INY_, 5), I(LDY, ZPX, 4), I(LDA, ZPX, 4), I(LDX, ZPY, 4), I(LAX, ZPY, 4),
    I(CLV, IMP, 2), I(LDA, ABY, 4), I(TSX, IMP, 2), I(LAS, ABY, 4), I(LDY, ABX, 4), I(LDA, ABX, 4), I(LDX, ABY, 4), I(LAX, ABY, 4),
    // C0
    I(CPY, IMM, 2), I(CMP, INX_, 6), I(NOR, IMM, 2), I(DCP, INX_, 8), I(CPY, ZPG, 3), I(CMP, ZPG, 3), I(DEC, ZPG, 5), I(DCP, ZPG, 5),
    I(INY, IMP, 2), I(CMP, IMM, 2), I(DEX, IMP, 2), I(SBX, IMM, 2), I(CPY, ABS, 4), I(CMP, ABS, 4), I(DEC, ABS, 6), I(DCP, ABS, 6),
    // D0
    I(BNE, REL, 2), I(CMP, INY_, 5), I(KIL, IMP, 2), I(DCP, INY_, 8), I(NOR, ZPX, 4), I(CMP, ZPX, 4), I(DEC, ZPX, 6), I(DCP, ZPX, 6),
    I(CLD, IMP, 2), I(CMP, ABY, 4), I(NOP, IMP, 2), I(DCP, ABY, 7), I(NOR, ABX, 4), I(CMP, ABX, 4), I(DEC, ABX, 7), I(DCP, ABX, 7),
    // E0
    I(CPX, IMM, 2), I(SBC, INX_, 6), I(NOR, IMM, 2), I(ISB, INX_, 8), I(CPX, ZPG, 3), I(SBC, ZPG, 3), I(INC, ZPG, 5), I(ISB, ZPG, 5),
    I(INX, IMP, 2), I(SBC, IMM, 2), I(NOP, IMP, 2), I(SBC, IMM, 2), I(CPX, ABS, 4), I(SBC, ABS, 4), I(INC, ABS, 6), I(ISB, ABS, 6),
    // F0
    I(BEQ, REL, 2), I(SBC, INY_, 5), I(KIL, IMP, 2), I(ISB, INY_, 8), I(NOR, ZPX, 4), I(SBC, ZPX, 4), I(INC, ZPX, 6), I(ISB, ZPX, 6),
    I(SED, IMP, 2), I(SBC, ABY, 4), I(NOP, IMP, 2), I(ISB, ABY, 7), I(NOR, ABX, 4), I(SBC, ABX, 4), I(INC, ABX, 7), I(ISB, ABX, 7),
#undef I
};

}  // namespace atari2600
