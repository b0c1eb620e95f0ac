"""A cartridge's program as C++, for the compiler to make instructions of the GPU from.

The interpreter of ``processor.h`` spends most of its time on finding out what an instruction is.
In the translation this is known: an instruction is a line of C++ that works on variables
(``running.h``), and a branch is a ``goto``. What the translation does not cover is left to the
interpreter, one instruction at a time: code outside the ROM or near its hot spots, decimal
arithmetic, rare instructions and rare addresses, loops that wait for the timer, and jumps to places
that nothing in the program names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hadamard.envs.atari2600.instructions import (
    BRANCHES,
    CHANGING,
    ENDS,
    READING,
    SIMPLE,
    STORING,
    STROBES,
    Instruction,
    is_ram,
    is_riot,
    is_tia,
)
from hadamard.envs.atari2600.program import WINDOWS, Program

NOT_TRANSLATED = """#pragma once
#include "processor.h"

namespace atari2600 {
EVERYWHERE void run_translated(Machine &) {}
}  // namespace atari2600
"""


@dataclass
class Exits:
    """Where the translation leaves: numbers for the tables of program counters and instructions.

    ``ways_out`` are left for good. ``pauses`` are left for what the chips do, at the labels
    ``read`` or ``write``, and gone on with afterwards.
    """

    ways_out: list[tuple[int, int]] = field(default_factory=list)
    pauses: list[tuple[int, int]] = field(default_factory=list)

    def way_out(self, within: int, left: int) -> int:
        """Return the number of an exit, with so many instructions of the block left."""
        if (within, left) not in self.ways_out:
            self.ways_out.append((within, left))
        return self.ways_out.index((within, left))

    def pause(self, within: int, left: int) -> int:
        """Return the number of a pause; it ends the translation at this exit."""
        self.pauses.append((within, left))
        return len(self.pauses) - 1

    def tables(self) -> str:
        """Return both tables in C++."""
        rows = {"WAYS_OUT": self.ways_out, "PAUSES": self.pauses}
        return "\n".join(
            f"DEVICE_TABLE const u32 {name}[] = {{"
            + ", ".join(f"{left << 16 | within:#x}" for within, left in [*places, (0, 0)])
            + "};"
            for name, places in rows.items()
        )


class Block:
    """The C++ of one block, from a leader to the next one or to where it surely leaves."""

    def __init__(self, program: Program, place: int, exits: Exits) -> None:
        self.program, self.exits = program, exits
        self.instructions: list[Instruction] = []
        while place in program.code:
            one = program.code[place]
            self.instructions.append(one)
            place = program.next_place(one)
            if one.operation in ENDS or program.is_interpreted(one):
                break
            if program.bank_after(one) is not None or place in program.leaders:
                break

    def leave(self, done: int, place: int) -> str:
        """Return what leaves the translation after some of the block's instructions."""
        number = self.exits.way_out(place & self.program.window, self.counted - done)
        return f"{{ at = {number}; goto leave; }}"

    def go(self, done: int, place: int) -> str:
        """Return what goes on at a place of the program."""
        if place not in self.program.leaders:
            return self.leave(done, place)
        back = self.counted - done
        return f"{{ {f'r.left += {back}; ' if back else ''}goto L{place:04x}; }}"

    def pause(self, label: str, done: int, place: int, **values: str) -> tuple[str, str]:
        """Return what goes to a label, and the label to which that comes back."""
        number = self.exits.pause(place & self.program.window, self.counted - done)
        given = "".join(f"{name} = {value}; " for name, value in values.items())
        return f"{{ {given}at = {number}; goto {label}; }}", f"P{number}:;"

    def source(self) -> str:
        """Return the block."""
        head = self.instructions[0]
        last = self.instructions[-1]
        interpreted = self.program.is_interpreted(last)
        if interpreted:
            self.instructions.pop()
        self.counted = len(self.instructions)
        lines = [f"L{head.place:04x}:"]
        if self.counted:
            start = self.exits.way_out(head.place & self.program.window, 0)
            lines.append(f"  if (RARELY(r.left < {self.counted})) {{ at = {start}; goto leave; }}")
            lines.append(f"  r.left -= {self.counted};")
        lines += [f"  {self.translate(i, one)}" for i, one in enumerate(self.instructions)]
        if interpreted:
            lines.append(f"  {self.leave(self.counted, last.place)}")
        elif last.operation not in ENDS:
            lines.append(f"  {self.go(self.counted, self.program.next_place(last))}")
        return "\n".join(lines)

    # ------------------------------------------------------------------ instructions

    def translate(self, number: int, one: Instruction) -> str:
        """Return one instruction."""
        operation, cycles = one.operation, f"r.now += {one.cycles};"
        if operation in BRANCHES:
            text = self._branch(number, one)
        elif operation in SIMPLE:
            text = f"{cycles} {SIMPLE[operation]}"
        elif operation in READING:
            text = self._reading(number, one)
        elif operation in STORING:
            text = self._storing(number, one, STORING[operation])
        elif operation in CHANGING:
            text = self._changing(number, one)
        elif operation in {"PHA", "PHP"}:
            text = self._pushing(number, one)
        elif operation in {"PLA", "PLP"}:
            text = self._pulling(number, one)
        elif operation == "JMP":
            text = f"{cycles} {self._jump(number, one)}"
        elif operation == "JSR":
            back = (one.place & self.program.window) + 2
            text = f"{cycles} call(r, ram, r.upper | {back:#x}); {self._jump(number, one)}"
        elif operation == "JMI":  # the pointer does not cross a page
            low, high = one.operand & 127, (one.operand + 1) & 127
            text = f"{cycles} pc = ram[{low}] | (u32)ram[{high}] << 8; goto arrive;"
        else:
            assert operation == "RTS"
            text = f"{cycles} pc = go_back(r, ram); goto arrive;"
        return f"{text}  // {one.place:04x} {operation} {one.mode} {one.operand:#x}"

    def _jump(self, number: int, one: Instruction) -> str:
        target = self.program.target(one)
        if target is None or target not in self.program.leaders:
            return f"pc = {one.operand:#x}; goto leave_for;"
        upper = one.operand & ~self.program.window & 0xFFFF
        return f"r.upper = {upper:#x}; {self.go(number + 1, target)}"

    def _branch(self, number: int, one: Instruction) -> str:
        target, after = self.program.target(one), one.place + 2
        assert target is not None
        taken = one.cycles + (2 if (target ^ after) & 0xFF00 else 1)
        return (
            f"if ({BRANCHES[one.operation]}) {{ r.now += {taken}; {self.go(number + 1, target)} }} "
            f"r.now += {one.cycles};"
        )

    # ------------------------------------------------------------------ memory

    def _index(self, one: Instruction) -> str:
        return "r.x" if one.mode in {"ZPX", "ABX", "INX_"} else "r.y"

    def _rom(self, one: Instruction) -> str:
        bank = one.place & ~self.program.window
        return f"read_only(rom + ({bank:#x} | (address & {self.program.window:#x})))"

    def _before(self, number: int, one: Instruction) -> str:
        return self.leave(number, one.place)

    def _find(self, number: int, one: Instruction) -> tuple[str, str]:
        """Return what finds the address of an indexed access, and its crossing of a page."""
        index, operand = self._index(one), one.operand
        if one.mode in {"ZPX", "ZPY"}:
            return f"u32 address = ({operand:#x} + {index}) & 0xff;", ""
        if one.mode in {"ABX", "ABY"}:
            crossed = f"r.now += ({operand & 0xFF:#x} + {index}) >> 8;"
            return f"u32 address = ({operand:#x} + {index}) & 0xffff;", crossed
        if one.mode == "INX_":
            found = (
                f"u32 pointer = ({operand:#x} + {index}) & 0xff; "
                f"if (RARELY(pointer - 0x80 >= 0x7f)) {self._before(number, one)} "
                "u32 high = ram[(pointer & 127) + 1], address = ram[pointer & 127] | high << 8;"
            )
            return found, ""
        low, high = f"ram[{operand & 127}]", f"ram[{(operand & 127) + 1}]"
        found = f"u32 low = {low}, address = ((low | (u32){high} << 8) + r.y) & 0xffff;"
        return found, "r.now += (low + r.y) >> 8;"

    def _reading(self, number: int, one: Instruction) -> str:
        before = self._before(number, one)
        decimal = f"if (RARELY(m.cpu.decimal)) {before} " if one.operation in {"ADC", "SBC"} else ""
        find, label = self._value(number, one)
        return f"{{ {decimal}{find} }} {label} {{ {READING[one.operation]} }}"

    def _value(self, number: int, one: Instruction) -> tuple[str, str]:
        """Return what makes ``value`` the operand, and the label where it is."""
        cycles, operand = f"r.now += {one.cycles};", one.operand
        if one.mode == "IMM":
            return f"{cycles} value = {operand:#x};", ""
        if one.mode in {"ZPG", "ABS"}:
            if is_ram(operand):
                return f"{cycles} value = ram[{operand & 127}];", ""
            if is_tia(operand) or is_riot(operand):
                bus = operand >> 8 if one.mode == "ABS" else operand
                return self._chip(number, one, f"{operand:#x}", f"{bus:#x}")
            bank = self.program.bank_after(one)
            if bank is not None:  # the byte is read from the new bank
                place = bank * (self.program.window + 1) + (operand & self.program.window)
                return f"{cycles} value = {self.program.rom[place]:#x}; switch_bank(m, {bank});", ""
            place = one.place & ~self.program.window | operand & self.program.window
            return f"{cycles} value = {self.program.rom[place]:#x};", ""
        find, crossed = self._find(number, one)
        before = self._before(number, one)
        in_ram = f"{{ {cycles} {crossed} value = ram[address & 127]; }}"
        if one.mode in {"ZPX", "ZPY"}:
            chip, label = self._chip(number, one, "address", f"{operand:#x}")
            return f"{find} if (USUALLY(address & 0x80)) {in_ram} else {chip}", label
        in_rom = f"{{ {cycles} {crossed} value = {self._rom(one)}; }}"
        first_hot = self.program.first_hot
        if operand & 0x1000 and (operand & 0xFFF) + 0xFF < first_hot and one.mode in {"ABX", "ABY"}:
            return f"{find} {in_rom}", ""
        either = f"{find} if (USUALLY(is_plain_rom(address, {first_hot:#x}))) {in_rom}"
        either += f" else if (USUALLY(is_ram(address))) {in_ram}"
        if one.mode != "INX_":
            return f"{either} else {before}", ""
        chip, label = self._chip(number, one, "address", "high")
        return f"{either} else if (is_tia(address)) {chip} else {before}", label

    def _chip(self, number: int, one: Instruction, address: str, bus: str) -> tuple[str, str]:
        """Return what reads the TIA or the RIOT, and the label where the value is."""
        values = {"chip": address, "value": bus, "cycles": str(one.cycles)}
        return self.pause("read", number, one.place, **values)

    def _write_tia(self, number: int, one: Instruction, reg: str, value: str) -> tuple[str, str]:
        """Return what writes a register of the TIA in full, and the label behind that."""
        after = self.program.next_place(one)
        return self.pause("write", number + 1, after, chip=reg, value=value)

    def _storing(self, number: int, one: Instruction, stored: str) -> str:
        cycles, operand = f"r.now += {one.cycles};", one.operand
        if one.mode in {"ZPG", "ABS"}:
            if is_ram(operand):
                return f"{cycles} ram[{operand & 127}] = (u8)({stored});"
            if is_tia(operand):
                reg = operand & 0x3F
                write, label = self._write_tia(number, one, f"{reg:#x}", stored)
                if reg in STROBES:
                    return f"{cycles} {write} {label}"
                late = f"if (RARELY(is_late(r, {reg:#x}))) {write}"
                return f"{cycles} {late} write_simply(r, m, {reg:#x}, {stored}); {label}"
            if is_riot(operand):
                return f"{cycles} write_riot(r, m, {operand:#x}, {stored});"
            bank = self.program.bank_after(one)
            return cycles + ("" if bank is None else f" switch_bank(m, {bank});")
        find, _ = self._find(number, one)
        write, label = self._write_tia(number, one, "address & 0x3f", stored)
        return (
            f"{{ {find} if (USUALLY(is_ram(address))) {{ {cycles} ram[address & 127] = "
            f"(u8)({stored}); }} else if (is_tia(address)) {{ {cycles} {write} }} "
            f"else {self._before(number, one)} }} {label}"
        )

    def _pushing(self, number: int, one: Instruction) -> str:
        stored = "r.a" if one.operation == "PHA" else "status(r, m.cpu)"
        write, label = self._write_tia(number, one, "address & 0x3f", "stored")
        return (
            f"{{ u32 address = r.s, stored = {stored}; r.now += {one.cycles}; "
            f"r.s = (r.s - 1) & 0xff; if (USUALLY(address & 0x80)) "
            f"ram[address & 127] = (u8)stored; else {write} }} {label}"
        )

    def _pulling(self, number: int, one: Instruction) -> str:
        action = "load(r, r.a, value)" if one.operation == "PLA" else "set_status(r, m.cpu, value)"
        # The stack is read once before it moves.
        bus = f"r.s & 0x80 ? ram[r.s & 127] : {one.operand:#x}"
        chip, label = self._chip(number, one, "address", bus)
        return (
            f"{{ u32 address = (r.s + 1) & 0xff; if (USUALLY(address & 0x80)) "
            f"{{ r.now += {one.cycles}; value = ram[address & 127]; }} else {chip} }} {label} "
            f"r.s = (r.s + 1) & 0xff; {action};"
        )

    def _changing(self, number: int, one: Instruction) -> str:
        cycles, operand = f"r.now += {one.cycles};", one.operand
        if one.mode in {"ZPG", "ABS"}:
            place, find = str(operand & 127), ""
        else:
            find, _ = self._find(number, one)
            find += f" if (RARELY(!is_ram(address))) {self._before(number, one)}"
            place = "address & 127"
        also = " compare(r, r.a, result);" if one.operation == "DCP" else ""
        return (
            f"{{ {find} {cycles} u32 old = ram[{place}], result = {CHANGING[one.operation]}; "
            f"ram[{place}] = (u8)result;{also} }}"
        )


def translation(rom: bytes, cartridge: str, computed_jumps: Iterable[int] = ()) -> str:
    """Return the C++ of a cartridge's program; of some kinds of cartridge, none of it."""
    if cartridge not in WINDOWS:
        return NOT_TRANSLATED
    program, exits = Program(rom, cartridge, computed_jumps), Exits()
    window = program.window
    blocks = "\n".join(Block(program, place, exits).source() for place in sorted(program.leaders))
    entries = sorted(program.entries)
    cases = "\n".join(f"    case {place:#x}: goto L{place:04x};" for place in entries)
    pauses = "\n".join(f"    case {number}: goto P{number};" for number in range(len(exits.pauses)))
    return f"""// Generated by translate.py.
#pragma once
#include "running.h"

namespace atari2600 {{

// The lower half is a place within the bank, the upper one how many instructions were not run.
{exits.tables()}

EVERYWHERE void run_translated(Machine &m) {{
  u8 *const ram = m.console.ram;
  const u8 *const rom = m.rom;
  u32 pc = m.cpu.pc, value = 0, at = 0, chip = 0, cycles = 0, place;
  Running r;
  take_registers(r, m, {window:#x});
arrive:
  if (RARELY(!(pc & 0x1000))) goto leave_for;
  r.upper = pc & {~window & 0xFFFF:#x};
  switch (bank_start(m.cpu.slices) | (pc & {window:#x})) {{
{cases}
    default: goto leave_for;
  }}
read:
  if (read_chip(r, m, cycles, chip, value, value)) goto go_on;
  goto pause;
write:
  if (write_tia_slowly(r, m, chip, value)) goto pause;
go_on:
  switch (at) {{
{pauses}
    default: goto pause;  // there is none
  }}
{blocks}
pause:
  place = read_only(PAUSES + at);
  goto leave_at;
leave:
  place = read_only(WAYS_OUT + at);
leave_at:
  r.left += place >> 16;
  pc = r.upper | (place & 0xffff);
leave_for:
  put_registers(r, m, pc);
}}

}}  // namespace atari2600
"""
