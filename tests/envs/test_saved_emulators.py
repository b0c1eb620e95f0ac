"""Saved games of the emulators are not trusted: those that would leave their memory are refused."""

from __future__ import annotations

import copy
import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("ale_py")

from hadamard.core.types import State
from hadamard.envs.atari2600.source import write_sources
from hadamard.envs.atari_on_device import EmulatedGames
from tests.envs import damaged_games

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the source is compiled with g++, which is not here"
)

UNFINISHED = "frame.unfinished = 1; frame.rows = 3; frame.next_row = 228 * (34 + 3);"
REFUSED = {
    "seaquest": [
        *("frame.page = 2", "frame.recording = 3", "frame.unpainted[0] = 4"),
        *("frame.unpainted[1] = 255", "frame.rows = -1", "frame.rows = HEIGHT + 1"),
        *("frame.writes = MOST_WRITES + 1", "frame.seen = -1"),
        f"{UNFINISHED} frame.next_row++",
        f"{UNFINISHED} frame.next_row = -0x7fffffff",
        f"{UNFINISHED} frame.next_row = NO_MORE_ROWS",
        *("recordings[0].first_write[0] = MOST_WRITES + 1", "recordings[1].seen = -1"),
        "recordings[2].first_write[HEIGHT] = 0x80000000u",
        *("console.riot.shift = 11", "console.cpu.carry = 2"),
        *("console.cpu.slices = bank_of_4k(1)", "console.cpu.slices = 0x03020120"),
        *("console.controls.resistance = 0x7fffffff", "console.controls.resistance = 0"),
        *("env.score = -0x7fffffff", "env.last_score = 0x7fffffff"),
        *("env.frames = 0x7fffffff", "env.frames = -1", "env.length = 0x7fffffff"),
    ],
    "breakout": ["console.cpu.slices = bank_of_4k(0)"],
    "asterix": ["console.cpu.slices = bank_of_4k(2)", "console.cpu.slices = 0x03020105"],
    "road_runner": ["console.cpu.slices = bank_of_4k(4)", "console.cpu.slices = 0x0f0e0d0d"],
    "montezuma_revenge": ["console.cpu.slices = 0x07060508", "console.cpu.slices = 0x08000000"],
    "robotank": ["console.cpu.slices = 0xffffffffu"],
}
ACCEPTED = {
    "seaquest": [
        UNFINISHED,
        "frame.unfinished = 1; frame.rows = HEIGHT; frame.next_row = NO_MORE_ROWS",
        "console.cpu.pc = 0xffffffffu; console.cpu.registers = 0xffffffffu",
        "frame.writes = MOST_WRITES",
    ],
    "breakout": ["console.cpu.slices = 0x01000100"],
    "asterix": ["console.cpu.slices = bank_of_4k(0)", "console.cpu.slices = bank_of_4k(1)"],
    "road_runner": [f"console.cpu.slices = bank_of_4k({bank})" for bank in range(4)],
    "montezuma_revenge": ["console.cpu.slices = 0x07000307"],
    "robotank": ["console.riot.shift = 10"],
}
CHANGES = [(name, change) for name in REFUSED for change in (*REFUSED[name], *ACCEPTED[name])]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """What makes the changes to a saved game."""
    folder: Path = tmp_path_factory.mktemp("changes")
    write_sources(folder)
    cases = "".join(f"case {i}: {change}; break;\n" for i, (_, change) in enumerate(CHANGES))
    text = (
        '#include "host.cpp"\n'
        'extern "C" void change(i32 number, Environment &env, Recording *recordings) {\n'
        "Console &console = env.console; Frame &frame = console.frame;\n"
        f"switch (number) {{\n{cases}}}\n}}\n"
    )
    (folder / "change.cpp").write_text(text)
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "change.cpp", "-o", "change.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "change.so"))


def changed(library: ctypes.CDLL, name: str, state: State, change: str) -> State:
    """Return a saved state of two games with a change of the second."""
    other: State = copy.deepcopy(state)
    memory = (other["emulators"][part][1].data_ptr() for part in ("consoles", "recordings"))
    library.change(CHANGES.index((name, change)), *map(ctypes.c_void_p, memory))
    return other


@pytest.mark.parametrize("name", REFUSED)
def test_only_a_saved_game_that_stays_in_its_memory_is_played(
    name: str, library: ctypes.CDLL
) -> None:
    games = EmulatedGames([name] * 2, [0, 1])
    games.reset()
    state = copy.deepcopy(games.state_dict())
    message = r"environment 1 is damaged \(1 of 2 are\): resume from another checkpoint"
    for change in REFUSED[name]:
        with pytest.raises(ValueError, match=message):
            games.load_state_dict(changed(library, name, state, change))
        now = games.state_dict()["emulators"]
        assert all(torch.equal(now[part], value) for part, value in state["emulators"].items())
    for change in ACCEPTED[name]:
        games.load_state_dict(changed(library, name, state, change))
        games.step(torch.tensor([0, 1]))


def test_damaged_games_are_refused_or_play_within_their_memory() -> None:
    """In a process of its own, which a wrong access would end."""
    names = ["asterix", "montezuma_revenge"]
    command = [sys.executable, "-m", "tests.envs.damaged_games", "--games", *names]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, "--trials", "400"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"(\w+) (\w+): (\d+) refused, (\d+) played", done.stdout)
    assert [name for name, *_ in printed] == names
    for name, digest, refused, played in printed:
        assert int(refused) > 20
        assert int(played) > 200
        # No addresses are saved: in another process they would be others.
        assert digest == damaged_games.digest(damaged_games.saved_game(name)[1])
