"""The 6507's instructions: how a ROM holds them, and what becomes of each in C++.

The lines work on the variables of ``running.h``: ``value`` is what an instruction reads, ``old``
what it changes. What is not here is left to the interpreter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OPCODES = Path(__file__).parent / "opcodes.h"
LENGTHS = {"IMP": 1, "ABS": 3, "ABX": 3, "ABY": 3}
BRANCHES = {
    "BPL": "!(r.negative & 0x80)",
    "BMI": "r.negative & 0x80",
    "BVC": "!r.overflow",
    "BVS": "r.overflow",
    "BCC": "!r.carry",
    "BCS": "r.carry",
    "BNE": "r.nonzero",
    "BEQ": "!r.nonzero",
}
READING = {
    "LDA": "load(r, r.a, value);",
    "LDX": "load(r, r.x, value);",
    "LDY": "load(r, r.y, value);",
    "LAX": "load(r, r.a, value); r.x = value;",
    "ADC": "add(r, value);",
    "SBC": "add(r, value ^ 0xff);",
    "AND": "load(r, r.a, r.a & value);",
    "ORA": "load(r, r.a, r.a | value);",
    "EOR": "load(r, r.a, r.a ^ value);",
    "CMP": "compare(r, r.a, value);",
    "CPX": "compare(r, r.x, value);",
    "CPY": "compare(r, r.y, value);",
    "BIT": "test_bits(r, value);",
    "NOR": "",
}
STORING = {"STA": "r.a", "STX": "r.x", "STY": "r.y", "SAX": "r.a & r.x"}
CHANGING = {
    "ASL": "shifted_left(r, old, 0)",
    "ROL": "shifted_left(r, old, r.carry)",
    "LSR": "shifted_right(r, old, 0)",
    "ROR": "shifted_right(r, old, r.carry)",
    "INC": "changed(r, old + 1)",
    "DEC": "changed(r, old - 1)",
    "DCP": "(old - 1) & 0xff",
}
SIMPLE = {
    "TAX": "load(r, r.x, r.a);",
    "TXA": "load(r, r.a, r.x);",
    "TAY": "load(r, r.y, r.a);",
    "TYA": "load(r, r.a, r.y);",
    "TSX": "load(r, r.x, r.s);",
    "TXS": "r.s = r.x;",
    "INX": "r.x = changed(r, r.x + 1);",
    "INY": "r.y = changed(r, r.y + 1);",
    "DEX": "r.x = changed(r, r.x - 1);",
    "DEY": "r.y = changed(r, r.y - 1);",
    "ASA": "r.a = shifted_left(r, r.a, 0);",
    "RLC": "r.a = shifted_left(r, r.a, r.carry);",
    "LSA": "r.a = shifted_right(r, r.a, 0);",
    "RRC": "r.a = shifted_right(r, r.a, r.carry);",
    "CLC": "r.carry = 0;",
    "SEC": "r.carry = 1;",
    "CLV": "r.overflow = 0;",
    "CLI": "m.cpu.interrupt = 0;",
    "SEI": "m.cpu.interrupt = 1;",
    "CLD": "m.cpu.decimal = 0;",
    "SED": "m.cpu.decimal = 1;",
    "NOP": "",
}
ENDS = {"JMP", "JMI", "RTS", "JSR"}
WAITING = {"BNE": {"LDA", "LDX", "LDY", "LAX"}, "BPL": {"LDA", "LDX", "LDY", "LAX", "BIT"}}
"""Loops that wait for the timer, by their branch (turns_of_waiting)."""
STACK = {"PHA", "PHP", "PLA", "PLP"}
STROBES = {
    *(0x00, 0x01, 0x03),  # VSYNC, VBLANK, RSYNC
    *range(0x10, 0x15),  # RESP0 to RESBL
    *range(0x28, 0x2B),  # RESMP0, RESMP1, HMOVE
    *range(0x2C, 0x40),  # CXCLR and beyond
}
"""Registers of the TIA whose writes do more than to be kept (write_beam)."""


@cache
def opcodes() -> list[tuple[str, str, int]]:
    """Return operation, mode and cycles of every opcode, as ``opcodes.h`` has them."""
    rows = re.findall(r"I\((\w+), (\w+), (\d)\)", OPCODES.read_text())
    found = [(operation, mode, int(cycles)) for operation, mode, cycles in rows]
    assert len(found) == 256
    return found


@dataclass(frozen=True)
class Instruction:
    """One instruction of the ROM."""

    place: int
    """Where in the ROM it is."""
    operation: str
    mode: str
    cycles: int
    operand: int
    length: int


def is_ram(address: int) -> bool:
    """Whether an address is RAM."""
    return address & 0x1280 == 0x80


def is_tia(address: int) -> bool:
    """Whether an address is one of the TIA's."""
    return not address & 0x1080


def is_riot(address: int) -> bool:
    """Whether an address is one of the RIOT's registers."""
    return address & 0x1280 == 0x280
