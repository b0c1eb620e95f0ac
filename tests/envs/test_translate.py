"""Translated programs of the Atari 2600 play as the interpreter does, state by state."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py import roms as ale_roms

from hadamard.envs.atari2600 import emulators, roms
from hadamard.envs.atari2600.emulators import Emulators, Settings
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.atari2600.instructions import BRANCHES, LENGTHS, opcodes
from hadamard.envs.atari2600.program import BANKS, HOT_SPOTS, WINDOWS, Program
from hadamard.envs.atari2600.source import write_sources
from hadamard.envs.atari2600.translate import translation

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the source is compiled with g++, which is not here"
)
SETTINGS = Settings(protocol=1, training=1, most_steps=27_000, most_frames=0)
START = 0xF000


def parts(games: Emulators) -> dict[str, np.ndarray]:
    """Return all that the next step depends on, and what was seen."""
    return {
        "state": games.state,
        "screens": games.screens,
        "recordings": games._recordings,
        "observations": games.observations,
        "outcomes": games.outcomes,
    }


def assert_equal(ours: Emulators, theirs: Emulators, when: int) -> None:
    for (name, one), other in zip(parts(ours).items(), parts(theirs).values(), strict=True):
        assert (one == other).all(), (name, when)


@needs_compiler
@pytest.mark.parametrize("rom", ["breakout", "qbert", "beam_rider"])
def test_a_translated_game_is_the_interpreted_one(rom: str) -> None:
    actions = roms.minimal_actions(rom)
    plain, translated = (
        Emulators(rom, [0, 1], actions, translated=translated) for translated in (False, True)
    )
    for games in (plain, translated):
        games.reset(SETTINGS)
    generator = np.random.default_rng(0)
    for step in range(60):
        action = generator.integers(len(actions), size=2).astype(np.int32)
        for games in (plain, translated):
            games.step(action, SETTINGS)
        assert_equal(plain, translated, step)


def random_operand(choose: random.Random, mode: str, cartridge: str) -> list[int]:
    """Return an operand that often is a register, RAM or a hot spot."""
    if LENGTHS.get(mode, 2) == 1:
        return []
    if LENGTHS.get(mode, 2) == 2:
        zero_page = choose.choice([choose.randrange(64), choose.randrange(128, 256)])
        return [choose.randrange(256) if mode == "IMM" else zero_page]
    hot_spot = 0xF000 + HOT_SPOTS.get(cartridge, 0xFF8) + choose.randrange(BANKS[cartridge])
    addresses = [
        *(choose.randrange(64), choose.randrange(0x80, 0x100), choose.randrange(0x280, 0x298)),
        *(choose.randrange(0xF000, 0x10000), hot_spot),
    ]
    address = choose.choice(addresses)
    return [address & 0xFF, address >> 8]


def random_program(seed: int, cartridge: str) -> bytes:
    """Return a cartridge of random instructions, whose jumps lead to other ones of the bank."""
    choose = random.Random(seed)
    bank_bytes = WINDOWS[cartridge] + 1
    usual = [row for row in enumerate(opcodes()) if row[1][0] not in {"KIL", "BRK", "RTI", "JMI"}]
    content = b""
    for _ in range(BANKS[cartridge]):
        bank, starts, jumps = bytearray(), [], []
        while len(bank) < bank_bytes - 48:
            starts.append(len(bank))
            opcode, (operation, mode, _) = choose.choice(usual)
            bank.append(opcode)
            if operation in BRANCHES:
                jumps.append((len(bank), True))
                bank.append(0)
            elif operation in {"JMP", "JSR"}:
                jumps.append((len(bank), False))
                bank += bytes(2)
            else:
                bank += bytes(random_operand(choose, mode, cartridge))
        for place, is_branch in jumps:
            near = [start for start in starts if -120 < start - place < 120]
            target = choose.choice(near if is_branch else starts)
            if is_branch:
                bank[place] = (target - place - 1) & 0xFF
            else:
                bank[place], bank[place + 1] = target & 0xFF, (START + target) >> 8
        bank += bytes([0x4C, START & 0xFF, START >> 8])  # JMP
        bank += bytes(choose.randrange(256) for _ in range(bank_bytes - 4 - len(bank)))
        content += bytes(bank) + bytes([START & 0xFF, START >> 8] * 2)
    return content


def library(folder: Path, program: bytes | None, cartridge: str) -> ctypes.CDLL:
    """Compile the source, with a program's translation or with the interpreter alone."""
    folder.mkdir()
    write_sources(folder)
    if program is not None:
        (folder / "translated.h").write_text(translation(program, cartridge))
    command = ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "host.cpp"]
    subprocess.run([*command, "-o", "library.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "library.so"))


@needs_compiler
@pytest.mark.parametrize("cartridge", BANKS)
def test_random_programs_run_translated_as_interpreted(
    cartridge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = library(tmp_path / "plain", None, cartridge)
    for seed in range(2):
        program = random_program(seed, cartridge)
        path = tmp_path / f"program{seed}.bin"
        path.write_bytes(program)
        monkeypatch.setattr(ale_roms, "get_rom_path", lambda rom, path=path: path)
        translated = library(tmp_path / f"translated{seed}", program, cartridge)
        both = []
        for chosen in (interpreter, translated):
            monkeypatch.setattr(emulators, "host_library", lambda rom, chosen=chosen: chosen)
            both.append(Emulators("seaquest", [0], [0]))
        for frame in range(60):
            for games in both:
                games.frame(0)
            assert_equal(*both, frame)


def test_a_program_is_followed_through_its_jumps() -> None:
    #     0: LDX #2; 2: DEX; 3: BNE 2; 5: JSR 12; 8: JMP (80); 12: LDA 1FF9,X; 15: RTS
    code = [0xA2, 2, 0xCA, 0xD0, 0xFD, 0x20, 0x0C, 0xF0, 0x6C, 0x80, 0x00, 0xFF]
    code += [0xBD, 0xF9, 0x1F, 0x60]
    rom = bytearray(4096)
    rom[: len(code)] = bytes(code)
    rom[0x100:0x102] = bytes([0xEA, 0x60])  # reached by the indirect jump alone
    rom[0xFFC:0xFFE] = bytes([0x00, 0xF0])
    program = Program(bytes(rom), "CART_4K")
    assert sorted(program.code) == [0, 2, 3, 5, 8, 12, 15]
    assert program.leaders == {0, 2, 8, 12}
    assert program.entries == {0, 8}  # the start, and where the subroutine returns to
    more = Program(bytes(rom), "CART_4K", [0x100])
    assert sorted(more.code) == [0, 2, 3, 5, 8, 12, 15, 0x100, 0x101]
    assert more.entries == {0, 8, 0x100}


def test_a_bank_is_switched_at_its_hot_spot() -> None:
    bank = [0xEA] * 16
    first, second = bytearray(4096), bytearray(4096)
    first[:16] = second[:16] = bytes(bank)
    second[4:7] = bytes([0x8D, 0xF8, 0x1F])  # STA 1FF8: to the first bank
    for one in (first, second):
        one[16:19] = bytes([0x4C, 0x00, 0xF0])
        one[0xFFC:0xFFE] = bytes([0x00, 0xF0])
    program = Program(bytes(first + second), "CART_F8")
    assert 0x1004 in program.code  # power-on shows the second bank
    assert program.next_place(program.code[0x1004]) == 7
    assert 7 in program.entries
    assert 0x1007 not in program.code


def test_waiting_for_the_timer_is_left_to_the_interpreter() -> None:
    rom = bytearray(4096)
    rom[:8] = bytes([0xAD, 0x84, 0x02, 0xD0, 0xFB, 0x4C, 0x00, 0xF0])  # LDA INTIM; BNE
    rom[0xFFC:0xFFE] = bytes([0x00, 0xF0])
    program = Program(bytes(rom), "CART_4K")
    assert program.is_waiting(program.code[0])
    assert program.entries == {0, 3}


def test_every_known_jump_is_a_place_of_its_rom() -> None:
    for game in TABLE:
        size = len(roms.read(game.rom))
        assert all(0 <= place < size for place in roms.computed_jumps(game.rom))
