"""Measure how fast the tensor games play on this machine's CPU, with random actions.

python benchmarks/bench_games.py --games 4096 --seconds 5
"""

from __future__ import annotations

import argparse
import platform
import time

import torch

from hadamard.envs import minatar
from hadamard.envs.minatar_tensors import tasks


def steps_per_second(task: str, games: int, seconds: float) -> float:
    """Return how many steps a batch of games plays in a second, all games counted."""
    envs = minatar.make_on_device(task, 0, games, "cpu")
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(envs.spec.num_actions, (64, games), generator=generator)
    for action in actions[:3]:
        envs.step(action)
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        envs.step(actions[steps % len(actions)])
        steps += 1
    return steps * games / elapsed


def main() -> None:
    """Print one line for each game."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(
        f"{options.games} games, {platform.machine()}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}"
    )
    for task in tasks():
        rate = steps_per_second(task, options.games, options.seconds)
        print(f"{task:16}{rate:12,.0f} steps/s")


if __name__ == "__main__":
    main()
