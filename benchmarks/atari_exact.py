"""Compare the Atari 2600 source with ale-py, frame by frame, on the host.

    python benchmarks/atari_exact.py                          # all games, 20,000 frames, 2 seeds
    python benchmarks/atari_exact.py --games breakout --frames 2000 --seeds 1
    python benchmarks/atari_exact.py --actions played.npz     # the actions of an agent

RAM, all pixels, reward, lives and the game's end must be equal on every frame of random play, new
games included. Then steps of an agent must equal those of the CPU suite in both ways to begin a
game: observation, reward, ends, score and length. The command fails if a game that is not refused
differs.

``--actions`` plays recorded actions instead of random ones: a file of NumPy that has, under the
name of each ROM, one of ALE's action numbers for each frame.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ale_py import ALEInterface, LoggerMode, roms
from numpy.typing import NDArray

from hadamard.envs import atari
from hadamard.envs.atari2600.emulators import Emulators, Settings
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.atari_game import MAX_FRAMES, MAX_STEPS
from hadamard.envs.common import environment_seeds

PARTS = ("RAM", "screen", "reward", "lives", "over", "steps")


@dataclass
class Comparison:
    """How a game went."""

    rom: str
    frames: int = 0
    games: int = 0
    steps: int = 0
    differing: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    first: dict[str, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every frame was equal."""
        return not any(self.differing.values())

    def count(self, part: str, differs: bool) -> None:
        """Count one frame or step."""
        if differs:
            self.differing[part] += 1
            self.first.setdefault(part, self.steps if part == "steps" else self.frames)


def rom_path(rom: str) -> Path:
    """Return where ale-py has a game's ROM."""
    path = roms.get_rom_path(rom)
    if path is None:
        raise ValueError(f"this ale-py has no ROM called {rom!r}")
    return Path(path)


def random_actions(actions: list[int], seed: int, frames: int) -> Iterator[int]:
    """Yield actions that are held for 1 to 16 frames."""
    choose, action = random.Random(seed), 0
    for frame in range(frames):
        if frame % choose.choice((1, 2, 4, 8, 16)) == 0:
            action = choose.choice(actions)
        yield action


def compare_frames(result: Comparison, seed: int, frames: int, recorded: Path | None) -> None:
    """Play frames on both."""
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", seed)
    ale.loadROM(rom_path(result.rom))
    actions = [int(action.value) for action in ale.getMinimalActionSet()]
    ours = Emulators(result.rom, [seed], actions, translated=True)
    ale.reset_game()
    ours.new_game()
    played = random_actions(actions, seed, frames)
    if recorded is not None:
        played = iter(np.load(recorded)[result.rom].tolist())
    for action in played:
        expected, reward = ale.act(action), ours.frame(action)
        ram, screen, lives, over = ours.look()
        result.count("RAM", bool((ram != ale.getRAM()).any()))
        result.count("screen", bool((screen != ale.getScreen()).any()))
        result.count("reward", reward != expected)
        result.count("lives", lives != ale.lives())
        result.count("over", over != ale.game_over())
        result.frames += 1
        if ale.game_over():
            result.games += 1
            ale.reset_game()
            ours.new_game()


def compare_steps(result: Comparison, seed: int, steps: int, protocol: str) -> None:
    """Play steps of two environments in the CPU suite and here."""
    task = next(task for task in atari.tasks() if atari.rom(task) == result.rom)
    suite = atari.make_part(task, seed, 2, atari_reset=protocol)
    ale = ALEInterface()
    ale.loadROM(rom_path(result.rom))
    actions = [int(action.value) for action in ale.getMinimalActionSet()]
    ours = Emulators(result.rom, environment_seeds(seed, 2), actions, translated=True)
    limits = (MAX_STEPS, 0) if protocol == "envpool" else (0, MAX_FRAMES)
    settings = Settings(atari.RESETS.index(protocol), 1, *limits)
    first = suite.reset()
    ours.reset(settings)
    result.count("steps", differ(first, ours.observations))
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        action = generator.integers(len(actions), size=2)
        step = suite.step(torch.from_numpy(action))
        ours.step(action.astype(np.int32), settings)
        outcomes = ours.outcomes
        begun = np.flatnonzero(outcomes["begun"])
        finished = np.flatnonzero(outcomes["finished"])
        games = [
            (int(e), float(outcomes["score"][e]), int(outcomes["length"][e])) for e in finished
        ]
        ended = [] if step.final_index is None else step.final_index.tolist()
        equal = (
            not differ(step.obs, ours.observations)
            and (step.reward.numpy() == np.sign(outcomes["reward"])).all()
            and (step.terminated.numpy() == outcomes["terminated"]).all()
            and (step.truncated.numpy() == outcomes["truncated"]).all()
            and games == [tuple(episode) for episode in step.episodes]
            and begun.tolist() == ended
            and (step.final_obs is None or not differ(step.final_obs, ours.ended[begun]))
        )
        result.count("steps", not equal)
        result.steps += 2


def differ(expected: torch.Tensor, observations: NDArray[np.uint8]) -> bool:
    """Return whether the newest frames of observations differ."""
    return bool((expected.numpy()[:, 0] != observations).any())


def compare(rom: str, options: argparse.Namespace) -> Comparison:
    """Compare a game in all ways."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    torch.set_num_threads(1)
    result = Comparison(rom)
    for seed in range(options.seeds):
        compare_frames(result, seed, options.frames, options.actions)
        if options.actions is not None:
            break
    for protocol in atari.RESETS:
        compare_steps(result, options.seeds, options.steps // 4, protocol)
    return result


def main() -> None:
    """Print one line for each game."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", nargs="*", help="all, or those in the file of actions")
    parser.add_argument("--frames", type=int, default=10_000, help="of each seed")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2_000, help="of an agent")
    parser.add_argument("--actions", type=Path, help="recorded actions")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    known = [game.rom for game in TABLE]
    games = options.games or known
    if options.actions is not None:
        games = options.games or [rom for rom in known if rom in np.load(options.actions)]
    refused = {game.rom: game.refused for game in TABLE if game.refused}
    print(f"| game | frames | games | {' | '.join(PARTS)} |")
    print("|---|---|---|" + "---|" * len(PARTS))
    failed = 0
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for result in pool.imap(partial(compare, options=options), games):
            cells = (
                f"{n} (first: {result.first[part]})" if n else "equal"
                for part, n in result.differing.items()
            )
            note = f" refused: {refused[result.rom]}" if result.rom in refused else ""
            name = result.rom + note
            print(
                f"| {name} | {result.frames} | {result.games} | {' | '.join(cells)} |", flush=True
            )
            failed += not result.exact and result.rom not in refused
    sys.exit(f"{failed} games differ" if failed else 0)


if __name__ == "__main__":
    main()
