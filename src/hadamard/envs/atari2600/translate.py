"""A cartridge's program as C++, for the compiler to make instructions of the GPU from.

The interpreter of ``processor.h`` spends most of its time on finding out what an instruction is.
In the translation this is known: an instruction is a line of C++ that works on variables
(``running.h``), and a branch is a ``goto``. What the translation does not cover is left to the
interpreter, one instruction at a time: code outside the ROM or near its hot spots, decimal
arithmetic, rare instructions and rare addresses, loops that wait for the timer, and jumps to places
that nothing in the program names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OPCODES = Path(__file__).parent / "opcodes.h"
WINDOWS = {"CART_2K": 0x7FF, "CART_4K": 0xFFF, "CART_F8": 0xFFF, "CART_F6": 0xFFF}
"""The addresses of one bank, for the kinds of cartridge that show one bank at all addresses."""
FIRST_BANK = {"CART_F8": 1}
"""The bank at power-on, if not the first."""
HOT_SPOTS = {"CART_F8": 0xFF8, "CART_F6": 0xFF6}
"""The address within the window that switches to the first bank; the next ones follow."""
BANKS = {"CART_2K": 1, "CART_4K": 1, "CART_F8": 2, "CART_F6": 4}

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
    "ASL": "shifted_left(r, value, 0)",
    "ROL": "shifted_left(r, value, r.carry)",
    "LSR": "shifted_right(r, value, 0)",
    "ROR": "shifted_right(r, value, r.carry)",
    "INC": "changed(r, value + 1)",
    "DEC": "changed(r, value - 1)",
    "DCP": "(value - 1) & 0xff",
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
ENDS = {"JMP", "RTS", "JSR"}


NOT_TRANSLATED = """#pragma once
#include "processor.h"

namespace atari2600 {
EVERYWHERE void run_translated(Machine &) {}
}  // namespace atari2600
"""


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


class Untranslated(Exception):
    """An instruction is left to the interpreter."""


class Program:
    """The instructions of a cartridge that are reached from its start and from other places.

    ``computed_jumps`` are places that only computed jumps lead to.
    """

    def __init__(self, rom: bytes, cartridge: str, computed_jumps: Iterable[int] = ()) -> None:
        self.rom, self.cartridge = rom, cartridge
        self.window = WINDOWS[cartridge]
        self.first_hot = HOT_SPOTS.get(cartridge, 0x1000)
        self.reached: dict[int, Instruction] = {}
        self.entries: set[int] = set()
        """Where the translation can be entered."""
        self.leaders: set[int] = set()
        """Where a block begins."""
        first = FIRST_BANK.get(cartridge, 0) * (self.window + 1)
        vector = first + 0xFFC % (self.window + 1)
        start = self._place(first, rom[vector] | rom[vector + 1] << 8)
        pending = [start, *computed_jumps]
        self.entries.update(pending)
        while pending:
            place = pending.pop()
            if place not in self.reached:
                pending += self._explore(place)
        self.code = {place: one for place, one in self.reached.items() if self.is_translated(place)}
        self.leaders = (self.leaders | self.entries) & self.code.keys()
        self.entries &= self.code.keys()

    def _place(self, place: int, address: int) -> int:
        """Return where the byte at an address is, for an instruction at ``place``."""
        return place & ~self.window | address & self.window

    def is_translated(self, place: int) -> bool:
        """Whether an instruction can be translated, from where it is."""
        within = place & self.window
        return within + 2 < (self.first_hot & self.window or self.window + 1)

    def instruction(self, place: int) -> Instruction:
        """Return the instruction at a place."""
        operation, mode, cycles = opcodes()[self.rom[place]]
        length = LENGTHS.get(mode, 2)
        after = [self.rom[(place + i) % len(self.rom)] for i in (1, 2)]
        operand = [self.rom[place], after[0], after[0] | after[1] << 8][length - 1]
        return Instruction(place, operation, mode, cycles, operand, length)

    def next_place(self, one: Instruction) -> int:
        """Return where the next instruction is, if this one is no jump."""
        place = self._place(one.place, one.place + one.length)
        bank = self.bank_after(one)
        return place if bank is None else bank * (self.window + 1) + (place & self.window)

    def bank_after(self, one: Instruction) -> int | None:
        """Return the bank to which an instruction surely switches."""
        first = HOT_SPOTS.get(self.cartridge)
        accesses = one.operation in READING or one.operation in STORING
        if first is None or one.mode != "ABS" or not one.operand & 0x1000 or not accesses:
            return None
        bank = (one.operand & 0xFFF) - first
        return bank if 0 <= bank < BANKS[self.cartridge] else None

    def target(self, one: Instruction) -> int | None:
        """Return where a branch, jump or call leads, unless out of the bank."""
        if one.operation in BRANCHES:
            offset = one.operand - 256 if one.operand > 127 else one.operand
            within = (one.place & self.window) + 2 + offset
            return self._place(one.place, within) if 0 <= within <= self.window else None
        return self._place(one.place, one.operand) if one.operand & 0x1000 else None

    def is_waiting(self, one: Instruction) -> bool:
        """Whether an instruction reads the timer in a loop with the branch behind it."""
        if one.mode != "ABS" or not is_riot(one.operand) or not one.operand & 4:
            return False
        after = self.instruction(self.next_place(one))
        return after.operation in BRANCHES and self.target(after) == one.place

    def _explore(self, place: int) -> list[int]:
        """Reach the instruction at a place; return where it leads."""
        one = self.reached[place] = self.instruction(place)
        following, leads_to = self.next_place(one), []
        interpreted = not self.is_translated(place) or not is_known(one) or self.is_waiting(one)
        if one.operation in BRANCHES or one.operation in {"JMP", "JSR"}:
            target = self.target(one)
            if target is not None:
                leads_to.append(target)
                self.leaders.add(target)
                if interpreted:
                    self.entries.add(target)
        if one.operation not in {"JMP", "RTS", "RTI", "JMI", "BRK", "KIL"}:
            leads_to.append(following)
            if interpreted or one.operation == "JSR" or self.bank_after(one) is not None:
                self.entries.add(following)
        return leads_to


def is_known(one: Instruction) -> bool:
    """Whether the translation has an operation."""
    known = (READING, STORING, CHANGING, SIMPLE, BRANCHES, ENDS, {"PHA", "PHP", "PLA", "PLP"})
    return any(one.operation in group for group in known)


class Block:
    """The C++ of one block, from a leader to the next one or to where it surely leaves."""

    def __init__(self, program: Program, place: int) -> None:
        self.program = program
        self.lines: list[str] = []
        self.instructions: list[Instruction] = []
        while place in program.code:
            one = program.code[place]
            self.instructions.append(one)
            place = program.next_place(one)
            if one.operation in ENDS or not is_known(one) or program.is_waiting(one):
                break
            if program.bank_after(one) is not None or place in program.leaders:
                break

    def address(self, place: int) -> str:
        """Return the program counter of a place."""
        return f"r.upper | {place & self.program.window:#x}"

    def leave(self, done: int, pc: str) -> str:
        """Return what leaves the translation after some of the block's instructions."""
        back = self.counted - done
        return f"{{ {f'r.left += {back}; ' if back else ''}pc = {pc}; goto leave; }}"

    def go(self, done: int, place: int | None, pc: str = "") -> str:
        """Return what goes on at a place of the program."""
        if place is None or place not in self.program.leaders:
            return self.leave(done, pc or self.address(place or 0))
        back = self.counted - done
        return f"{{ {f'r.left += {back}; ' if back else ''}goto L{place:04x}; }}"

    def source(self) -> str:
        """Return the block."""
        head = self.instructions[0]
        bodies: list[str] = []
        self.counted = len(self.instructions)
        ended = False
        for number, one in enumerate(self.instructions):
            try:
                if self.program.is_waiting(one):
                    raise Untranslated
                bodies.append(self.translate(number, one))
            except Untranslated:
                # The rest is not reached from here.
                self.counted = number
                bodies = [
                    self.translate(i, before) for i, before in enumerate(self.instructions[:number])
                ]
                bodies.append(self.leave(number, self.address(one.place)))
                ended = True
                break
        lines = [f"L{head.place:04x}:"]
        if self.counted:
            start = self.address(head.place)
            lines.append(f"  if (RARELY(r.left < {self.counted})) {{ pc = {start}; goto leave; }}")
            lines.append(f"  r.left -= {self.counted};")
        lines += [f"  {body}" for body in bodies]
        last = self.instructions[-1]
        if not ended and last.operation not in ENDS:
            after = self.program.next_place(last)
            lines.append(f"  {self.go(self.counted, after)}")
        return "\n".join(lines)

    # ------------------------------------------------------------------ instructions

    def translate(self, number: int, one: Instruction) -> str:
        """Return one instruction."""
        operation, cycles = one.operation, f"r.now += {one.cycles};"
        before = self.leave(number, self.address(one.place))
        after_place = self.program.next_place(one)
        after = self.leave(number + 1, self.address(after_place))
        comment = f"  // {one.place:04x} {operation} {one.mode} {one.operand:#x}"
        if operation in BRANCHES:
            text = self._branch(number, one)
        elif operation in SIMPLE:
            text = f"{cycles} {SIMPLE[operation]}"
        elif operation in READING:
            text = self._reading(one, before)
        elif operation in STORING:
            text = self._storing(one, STORING[operation], before, after)
        elif operation in CHANGING:
            text = self._changing(one, before)
        elif operation in {"PHA", "PHP"}:
            value = "r.a" if operation == "PHA" else "status(r, m.cpu)"
            text = (
                f"{cycles} {{ u32 at = r.s, value = {value}; r.s = (r.s - 1) & 0xff; "
                f"if (USUALLY(at & 0x80)) ram[at & 127] = (u8)value; "
                f"else if (write_tia_slowly(r, m, at & 0x3f, value)) {after} }}"
            )
        elif operation in {"PLA", "PLP"}:
            action = "load(r, r.a, value)" if operation == "PLA" else "set_status(r, m.cpu, value)"
            chip = self._chip(one, "at", f"{one.operand:#x}", before)
            text = (
                f"{{ u32 at = (r.s + 1) & 0xff, value; if (USUALLY(at & 0x80)) {{ {cycles} "
                f"value = ram[at & 127]; }} else {chip} r.s = at; {action}; }}"
            )
        elif operation == "JMP":
            text = f"{cycles} {self._jump(number, one)}"
        elif operation == "JSR":
            back = (one.place & self.program.window) + 2
            text = f"{cycles} call(r, ram, r.upper | {back:#x}); {self._jump(number, one)}"
        elif operation == "RTS":
            text = f"{cycles} pc = go_back(r, ram); goto arrive;"
        else:
            raise Untranslated
        return text + comment

    def _jump(self, number: int, one: Instruction) -> str:
        target = self.program.target(one)
        if target is None or target not in self.program.leaders:
            return self.leave(number + 1, f"{one.operand:#x}")
        upper = one.operand & ~self.program.window & 0xFFFF
        return f"r.upper = {upper:#x}; {self.go(number + 1, target)}"

    def _branch(self, number: int, one: Instruction) -> str:
        target = self.program.target(one)
        if target is None:
            raise Untranslated
        after = one.place + 2
        crossing = ((target ^ after) & 0xFF00) != 0
        taken = one.cycles + (2 if crossing else 1)
        return (
            f"if ({BRANCHES[one.operation]}) {{ r.now += {taken}; {self.go(number + 1, target)} }} "
            f"r.now += {one.cycles};"
        )

    # ------------------------------------------------------------------ memory

    def _index(self, one: Instruction) -> str:
        return "r.x" if one.mode in {"ZPX", "ABX", "INX_"} else "r.y"

    def _rom(self, address: str, one: Instruction) -> str:
        bank = one.place & ~self.program.window
        return f"read_only(rom + ({bank:#x} | (({address}) & {self.program.window:#x})))"

    def _find(self, one: Instruction, before: str) -> tuple[str, str]:
        """Return what finds the address ``at`` of an indexed access, and its crossing of a page."""
        index, operand = self._index(one), one.operand
        if one.mode in {"ZPX", "ZPY"}:
            return f"u32 at = ({operand:#x} + {index}) & 0xff;", ""
        if one.mode in {"ABX", "ABY"}:
            crossed = f"r.now += ({operand & 0xFF:#x} + {index}) >> 8;"
            return f"u32 at = ({operand:#x} + {index}) & 0xffff;", crossed
        if one.mode == "INX_":
            found = (
                f"u32 pointer = ({operand:#x} + {index}) & 0xff; "
                f"if (RARELY(pointer - 0x80 >= 0x7f)) {before} "
                "u32 high = ram[(pointer & 127) + 1], at = ram[pointer & 127] | high << 8;"
            )
            return found, ""
        if not 0x80 <= operand < 0xFF:
            raise Untranslated
        low, high = f"ram[{operand & 127}]", f"ram[{(operand & 127) + 1}]"
        found = f"u32 low = {low}, high = {high}, at = ((low | high << 8) + r.y) & 0xffff;"
        return found, "r.now += (low + r.y) >> 8;"

    def _reading(self, one: Instruction, before: str) -> str:
        decimal = f"if (RARELY(m.cpu.decimal)) {before} " if one.operation in {"ADC", "SBC"} else ""
        return f"{{ {decimal}{self._value(one, before)} {READING[one.operation]} }}"

    def _value(self, one: Instruction, before: str) -> str:
        """Return what makes ``value`` the operand."""
        cycles, operand = f"r.now += {one.cycles};", one.operand
        if one.mode == "IMM":
            return f"{cycles} u32 value = {operand:#x};"
        if one.mode in {"ZPG", "ABS"}:
            if is_ram(operand):
                return f"{cycles} u32 value = ram[{operand & 127}];"
            if is_tia(operand) or is_riot(operand):
                bus = operand >> 8 if one.mode == "ABS" else operand
                return f"u32 value; {self._chip(one, f'{operand:#x}', f'{bus:#x}', before)}"
            if not operand & 0x1000:
                raise Untranslated
            bank = self.program.bank_after(one)
            if bank is not None:
                # The byte is read from the new bank.
                place = bank * (self.program.window + 1) + (operand & self.program.window)
                return f"{cycles} u32 value = {self.program.rom[place]:#x}; switch_bank(m, {bank});"
            place = one.place & ~self.program.window | operand & self.program.window
            return f"{cycles} u32 value = {self.program.rom[place]:#x};"
        find, crossed = self._find(one, before)
        timing = f"{cycles} {crossed}"
        in_ram = f"{{ {timing} value = ram[at & 127]; }}"
        if one.mode in {"ZPX", "ZPY"}:
            chip = self._chip(one, "at", f"{operand:#x}", before)
            return f"{find} u32 value; if (USUALLY(at & 0x80)) {in_ram} else {chip}"
        in_rom = f"{{ {timing} value = {self._rom('at', one)}; }}"
        is_rom = f"is_plain_rom(at, {self.program.first_hot:#x})"
        if one.mode in {"ABX", "ABY"} and operand & 0x1000:
            if (operand & 0xFFF) + 0xFF < self.program.first_hot:
                return f"{find} u32 value; {in_rom}"
            return f"{find} u32 value; if (RARELY(!{is_rom})) {before} {in_rom}"
        high = f"{operand >> 8:#x}" if one.mode in {"ABX", "ABY"} else "high"
        chip = self._chip(one, "at", high, before, crossed)
        return (
            f"{find} u32 value; if (USUALLY({is_rom})) {in_rom} "
            f"else if (USUALLY(is_ram(at))) {in_ram} else {chip}"
        )

    def _chip(
        self, one: Instruction, address: str, bus: str, before: str, crossed: str = ""
    ) -> str:
        """Return what reads the TIA or the RIOT, but for hot spots and waiting loops."""
        read = f"!read_chip(r, m, {one.cycles}, {address}, {bus}, value)"
        if address == "at" and one.mode not in {"ZPX", "ZPY", "IMP"}:
            read = f"at & 0x1000 || (is_riot(at) && at & 4) || {read}"
        undo = crossed.replace("+=", "-=")
        if crossed:
            return f"{{ {crossed} if (RARELY({read})) {{ {undo} {before} }} }}"
        return f"{{ if (RARELY({read})) {before} }}"

    def _storing(self, one: Instruction, value: str, before: str, after: str) -> str:
        cycles, operand = f"r.now += {one.cycles};", one.operand
        if one.mode in {"ZPG", "ABS"}:
            if is_ram(operand):
                return f"{cycles} ram[{operand & 127}] = (u8)({value});"
            if is_tia(operand):
                return f"{cycles} if (write_tia(r, m, {operand & 0x3F:#x}, {value})) {after}"
            if is_riot(operand):
                return f"{cycles} write_riot(r, m, {operand:#x}, {value});"
            if not operand & 0x1000:
                raise Untranslated
            bank = self.program.bank_after(one)
            return cycles + ("" if bank is None else f" switch_bank(m, {bank});")
        find, _ = self._find(one, before)
        in_tia = f"if (write_tia_slowly(r, m, at & 0x3f, {value})) {after}"
        return (
            f"{{ {find} if (USUALLY(is_ram(at))) {{ {cycles} ram[at & 127] = (u8)({value}); }} "
            f"else if (is_tia(at)) {{ {cycles} {in_tia} }} else {before} }}"
        )

    def _changing(self, one: Instruction, before: str) -> str:
        cycles, operand = f"r.now += {one.cycles};", one.operand
        if one.mode in {"ZPG", "ABS"}:
            if not is_ram(operand):
                raise Untranslated
            place, find = str(operand & 127), ""
        else:
            find, _ = self._find(one, before)
            find += f" if (RARELY(!is_ram(at))) {before}"
            place = "at & 127"
        also = " compare(r, r.a, result);" if one.operation == "DCP" else ""
        return (
            f"{{ {find} {cycles} u32 value = ram[{place}]; u32 result = {CHANGING[one.operation]}; "
            f"ram[{place}] = (u8)result;{also} }}"
        )


def translation(rom: bytes, cartridge: str, computed_jumps: Iterable[int] = ()) -> str:
    """Return the C++ of a cartridge's program; of some kinds of cartridge, none of it."""
    if cartridge not in WINDOWS:
        return NOT_TRANSLATED
    program = Program(rom, cartridge, computed_jumps)
    window = program.window
    blocks = "\n".join(Block(program, place).source() for place in sorted(program.leaders))
    cases = "\n".join(
        f"    case {place:#x}: goto L{place:04x};" for place in sorted(program.entries)
    )
    return f"""// Generated by translate.py.
#pragma once
#include "running.h"

namespace atari2600 {{

EVERYWHERE void run_translated(Machine &m) {{
  u8 *const ram = m.console.ram;
  const u8 *const rom = m.rom;
  u32 pc = m.cpu.pc;
  Running r;
  take_registers(r, m, {window:#x});
arrive:
  if (RARELY(!(pc & 0x1000))) goto leave;
  r.upper = pc & {~window & 0xFFFF:#x};
  switch (bank_start(m.cpu.slices) | (pc & {window:#x})) {{
{cases}
    default: goto leave;
  }}
{blocks}
leave:
  put_registers(r, m, pc);
}}

}}  // namespace atari2600
"""
