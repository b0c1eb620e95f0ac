"""A cartridge's program, followed from its start through branches, calls and switches of banks."""

from __future__ import annotations

from collections.abc import Iterable

from hadamard.envs.atari2600.instructions import (
    BRANCHES,
    CHANGING,
    ENDS,
    LENGTHS,
    READING,
    SIMPLE,
    STACK,
    STORING,
    WAITING,
    Instruction,
    is_ram,
    is_riot,
    is_tia,
    opcodes,
)

WINDOWS = {"CART_2K": 0x7FF, "CART_4K": 0xFFF, "CART_F8": 0xFFF, "CART_F6": 0xFFF}
"""The addresses of one bank, for the kinds of cartridge that show one bank at all addresses."""
FIRST_BANK = {"CART_F8": 1}
"""The bank at power-on, if not the first."""
HOT_SPOTS = {"CART_F8": 0xFF8, "CART_F6": 0xFF6}
"""The address within the window that switches to the first bank; the next ones follow."""
BANKS = {"CART_2K": 1, "CART_4K": 1, "CART_F8": 2, "CART_F6": 4}


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
        """Whether an instruction waits for the timer in a loop that the interpreter skips."""
        if one.mode != "ABS" or not is_riot(one.operand) or not one.operand & 4:
            return False
        branch = self.instruction(self.next_place(one))
        skipped = WAITING.get(branch.operation, set())
        return one.operation in skipped and self.target(branch) == one.place

    def is_interpreted(self, one: Instruction) -> bool:
        """Whether an instruction is always left to the interpreter."""
        known = (READING, STORING, CHANGING, SIMPLE, BRANCHES, ENDS, STACK)
        if not any(one.operation in group for group in known) or self.is_waiting(one):
            return True
        if one.operation in BRANCHES:
            return self.target(one) is None
        operand = one.operand
        if one.mode == "INY_":
            return not 0x80 <= operand < 0xFF
        if one.operation == "JMI":
            return not is_ram(operand) or operand & 0xFF == 0xFF
        if one.mode not in {"ZPG", "ABS"} or one.operation in ENDS:
            return False
        if one.operation in CHANGING:
            return not is_ram(operand)
        places = is_ram(operand) or is_tia(operand) or is_riot(operand) or operand & 0x1000
        return not places

    def _explore(self, place: int) -> list[int]:
        """Reach the instruction at a place; return where it leads."""
        one = self.reached[place] = self.instruction(place)
        following, leads_to = self.next_place(one), []
        interpreted = not self.is_translated(place) or self.is_interpreted(one)
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
