"""The Atari 2600 source with programs of our own: games that hang, and games kept ready."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py import ALEInterface, LoggerMode, roms

from hadamard.envs.atari2600 import emulators
from hadamard.envs.atari2600.emulators import Emulators, power_on_values
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.atari2600.source import write_sources
from hadamard.envs.atari2600.translate import translation

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the source is compiled with g++, which is not here"
)
START = 0xF000
NORMAL_FRAMES = 75
"""ALE looks at a cartridge's first frames, which must therefore be usual ones."""

LDA, LDX, STA, STX, JMP = 0xA9, 0xA2, 0x85, 0x86, 0x4C
VSYNC, WSYNC, NUSIZ0, COLUBK, PF0, GRP0, INPT4 = 0x00, 0x02, 0x04, 0x09, 0x0D, 0x1B, 0x0C
COUNTER = 0x80


def lines(count: int) -> list[int]:
    """Show lines of different colors."""
    return [LDX, count, STX, COLUBK, STA, WSYNC, 0xCA, 0xD0, 0xF9]


SYNC = [LDA, 2, STA, VSYNC, STA, WSYNC, STA, WSYNC, STA, WSYNC, LDA, 0, STA, VSYNC]
CLEAR_RAM = [LDX, 0, LDA, 0, 0x95, 0x80, 0xE8, 0xE0, 0x80, 0xD0, 0xF9]


def program(body: Sequence[int], end: Sequence[int]) -> bytes:
    """Return a cartridge: some usual frames, then ``body`` once, then ``end`` for ever."""
    frame = [*SYNC, *lines(250), 0xE6, COUNTER, 0xA5, COUNTER, 0xC9, NORMAL_FRAMES, 0xD0]
    code = [*CLEAR_RAM, *frame, 0x100 - len(frame) - 1, *body]
    loop = START + len(code)
    code += [*end, JMP, loop & 0xFF, loop >> 8]
    cartridge = bytearray(4096)
    cartridge[: len(code)] = bytes(code)
    cartridge[0xFFC:] = bytes([START & 0xFF, START >> 8] * 2)
    return bytes(cartridge)


def delay(outer: int) -> list[int]:
    """Do nothing for 1,280 cycles many times."""
    return [0xA0, outer, LDX, 0, 0xCA, 0xD0, 0xFD, 0x88, 0xD0, 0xF8]


PROGRAMS = {
    "hangs": program([], []),
    "never syncs": program([], [STX, COLUBK, STA, WSYNC, 0xE8]),
    "hangs within the screen": program(lines(100), []),
    "hangs within a line, after NUSIZ": program([*lines(100), *[0xEA] * 15, STX, NUSIZ0], []),
    "hangs within a line, after PF0": program([*lines(100), *[0xEA] * 14, STX, PF0], []),
    "hangs within a line, after GRP0": program([*lines(100), *[0xEA] * 14, STX, GRP0], []),
    "hangs within a line, after a read": program([*lines(100), *[0xEA] * 14, 0xA6, INPT4], []),
    "takes two actions for a frame": program([], [*delay(60), *SYNC, 0xE6, 0x81]),
    "shows long frames": program([], [*delay(20), *SYNC, 0xE6, 0x81]),
}


def is_sound(ours: Emulators) -> bool:
    """Return whether the state would be loaded again, in the middle of a frame or not."""
    sound = ctypes.c_uint8(0)
    ours.library.atari2600_batch_check(
        ours.state.ctypes.data_as(ctypes.c_void_p),
        (ctypes.c_int32 * 1)(0),
        1,
        ctypes.byref(ours.game),
        ours._recordings.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(sound),
    )
    return bool(sound.value)


def translated_library(program: bytes, folder: Path) -> ctypes.CDLL:
    """Compile the source with a translation of the program."""
    write_sources(folder)
    (folder / "translated.h").write_text(translation(program, "CART_4K"))
    command = ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "host.cpp"]
    subprocess.run([*command, "-o", "translated.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "translated.so"))


@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hung_game_is_cut_as_ale_cuts_it(
    name: str, translated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if translated:
        library = translated_library(PROGRAMS[name], tmp_path)
        monkeypatch.setattr(emulators, "host_library", lambda rom: library)
    path = tmp_path / "seaquest.bin"  # ALE knows a game by its file's name, too
    path.write_bytes(PROGRAMS[name])
    monkeypatch.setattr(roms, "get_rom_path", lambda rom: path)
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(path)
    ours = Emulators("seaquest", [0], [0])
    ale.reset_game()
    ours.new_game()
    for _ in range(20):
        ale.act(0)
        ours.frame(0)
        ram, screen, _, _ = ours.look()
        assert (ram == ale.getRAM()).all()
        assert (screen == ale.getScreen()).all()
        assert is_sound(ours)


@pytest.mark.parametrize("rom", ["seaquest", "asterix"])
def test_a_game_kept_ready_is_the_game_switched_on(rom: str) -> None:
    plain, ready = Emulators(rom, [0], [0]), Emulators(rom, [0], [0])
    ready.keep_boots(power_on_values()[1][2:4].tolist())
    for _ in range(2):
        for games in (plain, ready):
            games.new_game()
        for _ in range(5):
            assert plain.frame(0) == ready.frame(0)
            for one, other in zip(plain.look(), ready.look(), strict=True):
                assert np.array_equal(one, other)


TRACKED = """
static i32 reads_before_writes = 0;
struct Byte {
  u8 value, written;
  operator u8() const { if (!written) reads_before_writes++; return value; }
  Byte &operator=(u8 v) { value = v; written = 1; return *this; }
};
struct Console {"""
COUNTED = """
#include "host.cpp"
extern "C" i32 reads_of_boot(const Game *game, u8 timer, Recording *recordings) {
  static Console console;
  console = Console();
  reads_before_writes = 0;
  boot({0, 1}, console, *game, timer, {0, recordings});
  return reads_before_writes;
}
"""


def test_the_boots_that_depend_on_the_game_before_are_known(tmp_path: Path) -> None:
    write_sources(tmp_path)
    for name, old, new in (
        ("console.h", "struct Console {", TRACKED),
        ("console.h", "u8 ram[128];", "Byte ram[128];"),
        ("agent.h", "env.console.ram, is_new", "(const u8 *)env.console.ram, is_new"),
    ):
        text = (tmp_path / name).read_text()
        assert text.count(old) == 1
        (tmp_path / name).write_text(text.replace(old, new))
    (tmp_path / "counted.cpp").write_text(COUNTED)
    command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", "counted.cpp", "-o", "counted.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "counted.so"))
    recordings = ctypes.create_string_buffer(library.atari2600_recording_bytes())
    found = set()
    for game in TABLE:
        games = Emulators(game.rom, [0], [0])
        if library.reads_of_boot(ctypes.byref(games.game), 65, recordings):
            found.add(game.rom)
    assert found == {game.rom for game in TABLE if game.boots_anew}
