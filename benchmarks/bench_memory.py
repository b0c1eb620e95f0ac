"""What it brings on a CPU that the C library keeps freed memory for the next update.

    python benchmarks/bench_memory.py --algorithm ppo --env atari/Breakout

Processes take turns in which training sets memory up as it does, or leaves it as the system has
it; of each, the time and the page faults of an update and the speed of training are printed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_atari import COMPARED, Updates
from hadamard.core import machine as setup
from hadamard.experiments.bench import Lane
from timing import machine

WAYS = ("as the system has it", "kept")


def measure(asked: argparse.Namespace) -> None:
    """Print this process's numbers for one way."""
    if asked.way != "kept":
        setup._keep_memory = lambda: None  # type: ignore[assignment]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant in COMPARED:
            place = Path(folder) / variant
            lane = Lane(asked.algorithm, asked.env, variant, "cpu", place)
            rate = lane.measure(asked.seconds).rate
            updates = Updates(lane)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            seconds = updates.seconds(asked.updates)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            found[variant] = (1e3 * seconds, faults / asked.updates, rate)
            lane.close()
    print(json.dumps(found))


def main() -> None:
    """Let both ways take turns, and print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithm", default="pqn", choices=["dqn", "ppo", "pqn"])
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--seconds", type=float, default=3.0, help="of training, each turn")
    parser.add_argument("--updates", type=int, default=20, help="in a row, each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process")
    asked = parser.parse_args()
    if asked.way:
        measure(asked)
        return
    print(f"{asked.algorithm} on {asked.env}, {machine()}")
    turns: dict[str, list[dict[str, tuple[float, float, float]]]] = {way: [] for way in WAYS}
    for _ in range(asked.turns):
        for way in WAYS:
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            turns[way].append(json.loads(told.splitlines()[-1]))
    for variant in COMPARED:
        for way, found in turns.items():
            took, faults, rate = (
                statistics.median(numbers)
                for numbers in zip(*(f[variant] for f in found), strict=True)
            )
            print(
                f"{variant:<12}{way:<22}{took:>9.2f} ms an update{faults:>10,.0f} page faults"
                f"{rate:>10,.0f} steps/s"
            )


if __name__ == "__main__":
    main()
