"""The C++ source with the table of games in it, and its library for the host."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from hadamard.envs.atari2600 import roms
from hadamard.envs.atari2600.games import TABLE, Game
from hadamard.envs.atari2600.translate import NOT_TRANSLATED, translation

FOLDER = Path(__file__).parent
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off")


MOST_THREADS = 256
"""Threads of a block at most."""
MULTIPROCESSORS = 132
"""About as many as a large GPU has."""


@dataclass(frozen=True)
class Launch:
    """How the kernels of ``device.cu`` divide environments among a GPU's processors."""

    lanes: int = 32
    """Threads of a warp that play one environment together."""
    resident: int = 2
    """Blocks of ``MOST_THREADS`` that must fit a multiprocessor together."""
    together: int = 1
    """Environments of a block, which begin each frame together."""

    @property
    def definitions(self) -> tuple[str, ...]:
        """What the compiler must know of it."""
        return f"-DLANES={self.lanes}", f"-DBLOCK={MOST_THREADS}", f"-DRESIDENT={self.resident}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.together

    def blocks(self, count: int) -> int:
        """Return how many blocks play so many environments."""
        return -(-count // self.together)


ALONE = Launch()


def launch_of(count: int) -> Launch:
    """Return how so many environments are played: each on a processor of its own, if there are."""
    most = MOST_THREADS // ALONE.lanes
    return replace(ALONE, together=min(most, max(1, -(-count // MULTIPROCESSORS))))


def table_header() -> str:
    """Return the readings of the table of games as C++ source."""
    readings = "".join(_reading(number, game) for number, game in enumerate(TABLE))
    rewards = "".join(
        f"    case {number}: return {game.reward};\n"
        for number, game in enumerate(TABLE)
        if game.reward != "gain"
    )
    return f"""// Generated from games.py.
#pragma once
#include "agent.h"

namespace atari2600 {{

EVERYWHERE Reading read_game(i32 number, const u8 *ram, u8 remembered) {{
  i32 score = 0, lives = 0;
  bool over = false;
  i32 remember = 0;
  switch (number) {{
{readings}  }}
  Reading reading = {{score, lives, over, (u8)remember}};
  (void)remembered;
  return reading;
}}

EVERYWHERE i32 reward_of(i32 number, i32 gain) {{
  switch (number) {{
{rewards}    default: return gain;
  }}
}}

}}  // namespace atari2600
"""


def _reading(number: int, game: Game) -> str:
    lives, over = f"      lives = {game.lives};\n", f"      over = {game.over};\n"
    if "over" in game.lives:
        lives, over = over, lives
    return (
        f"    case {number}:  // {game.rom}\n      score = {game.score};\n{lives}{over}"
        f"      remember = {game.remember};\n      break;\n"
    )


def sources(rom: str | None = None) -> dict[str, str]:
    """Return every file of the source by its name.

    With the name of a ROM its program is translated. Otherwise the interpreter plays any game.
    """
    files = sorted(path for path in FOLDER.iterdir() if path.suffix in {".h", ".cpp", ".cu"})
    made = {"table.h": table_header(), "translated.h": _translated(rom)}
    return {**{path.name: path.read_text() for path in files}, **made}


def _translated(rom: str | None) -> str:
    if rom is None:
        return NOT_TRANSLATED
    content = roms.read(rom)
    game = next(game for game in TABLE if game.rom == rom)
    return translation(content, game.cartridge_of(len(content)), roms.computed_jumps(rom))


def write_sources(folder: Path, rom: str | None = None) -> None:
    """Write the whole source into a folder."""
    for name, text in sources(rom).items():
        (folder / name).write_text(text)


def cache_folder() -> Path:
    """Return where compiled libraries are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "hadamard" / "atari2600"


def host_library(rom: str | None = None) -> ctypes.CDLL:
    """Compile the source with g++, unless that was done before, and load it."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("the Atari 2600 source needs g++ on this machine, which has none")
    text = "".join(sources(rom).values()) + " ".join(FLAGS)
    library = cache_folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as name:
            folder = Path(name)
            write_sources(folder, rom)
            command = [compiler, *FLAGS, str(folder / "host.cpp"), "-o", str(folder / "built.so")]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"g++ refused the Atari 2600 source:\n{done.stderr}")
            (folder / "built.so").replace(library)
    return ctypes.CDLL(str(library))
