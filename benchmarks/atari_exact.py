"""Compare the Atari 2600 source with ale-py, frame by frame, on the host.

    python benchmarks/atari_exact.py                          # all games, 20,000 frames, 2 seeds
    python benchmarks/atari_exact.py --games breakout --frames 2000 --seeds 1

RAM, all pixels, reward, lives and the game's end must be equal on every frame of random play, new
games included. The command fails if a game that is not refused differs.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field

from ale_py import ALEInterface, LoggerMode, roms

from hadamard.envs.atari2600.emulators import Emulators
from hadamard.envs.atari2600.games import TABLE

PARTS = ("RAM", "screen", "reward", "lives", "over")


@dataclass
class Comparison:
    """How a game went."""

    frames: int = 0
    games: int = 0
    differing: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    first: dict[str, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every frame was equal."""
        return not any(self.differing.values())

    def count(self, part: str, differs: bool) -> None:
        """Count one frame."""
        if differs:
            self.differing[part] += 1
            self.first.setdefault(part, self.frames)


def compare(rom: str, frames: int, seeds: int) -> Comparison:
    """Play a game on both."""
    result = Comparison()
    for seed in range(seeds):
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", seed)
        path = roms.get_rom_path(rom)
        if path is None:
            raise ValueError(f"this ale-py has no ROM called {rom!r}")
        ale.loadROM(path)
        actions = [int(action.value) for action in ale.getMinimalActionSet()]
        ours = Emulators(rom, [seed], actions)
        ale.reset_game()
        ours.new_game()
        choose, action = random.Random(seed), 0
        for frame in range(frames):
            if frame % choose.choice((1, 2, 4, 8, 16)) == 0:
                action = choose.choice(actions)
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
    return result


def main() -> None:
    """Print one line for each game."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", nargs="*", default=[game.rom for game in TABLE])
    parser.add_argument("--frames", type=int, default=10_000, help="of each seed")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    ALEInterface.setLoggerMode(LoggerMode.Error)
    refused = {game.rom: game.refused for game in TABLE if game.refused}
    print(f"| game | frames | games | {' | '.join(PARTS)} |")
    print("|---|---|---|" + "---|" * len(PARTS))
    failed = 0
    for rom in options.games:
        result = compare(rom, options.frames, options.seeds)
        cells = (
            f"{n} (first: {result.first[part]})" if n else "equal"
            for part, n in result.differing.items()
        )
        note = f" refused: {refused[rom]}" if rom in refused else ""
        print(
            f"| {rom}{note} | {result.frames} | {result.games} | {' | '.join(cells)} |", flush=True
        )
        failed += not result.exact and rom not in refused
    sys.exit(f"{failed} games differ" if failed else 0)


if __name__ == "__main__":
    main()
