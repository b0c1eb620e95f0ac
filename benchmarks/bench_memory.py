"""How much faster training is on a CPU when the C library keeps freed memory for the next update.

    python benchmarks/bench_memory.py --algorithm ppo --env atari/Breakout

Processes take turns: in one, training keeps freed memory, as it does by default; in the other, it
leaves the C library's default. Printed are the time and the page faults of an update, and the
speed of training.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from candidates import COMPARED, Updates
from hadamard.core import machine as core_machine
from hadamard.experiments.bench import variant_training
from timing import machine

WAYS = ("as the system has it", "kept")


def measure(options: argparse.Namespace) -> None:
    """Print this process's numbers for one way."""
    measured = {}
    keeping = (
        nullcontext()
        if options.way == "kept"
        else patch.object(core_machine, "_keep_freed_memory", lambda: None)
    )
    with tempfile.TemporaryDirectory() as folder, keeping:
        for variant in COMPARED:
            place = Path(folder) / variant
            training = variant_training(options.algorithm, options.env, variant, "cpu", place)
            rate = training.measure(options.seconds).rate
            updates = Updates(training)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            seconds = updates.seconds(options.updates)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            measured[variant] = (1e3 * seconds, faults / options.updates, rate)
            training.close()
    print(json.dumps(measured))


def main() -> None:
    """Let both ways take turns, and print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithm", default="pqn", choices=["dqn", "ppo", "pqn"])
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--seconds", type=float, default=3.0, help="of training, each turn")
    parser.add_argument("--updates", type=int, default=20, help="in a row, each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process")
    options = parser.parse_args()
    if options.way:
        measure(options)
        return
    print(f"{options.algorithm} on {options.env}, {machine()}")
    turns: dict[str, list[dict[str, tuple[float, float, float]]]] = {way: [] for way in WAYS}
    for _ in range(options.turns):
        for way in WAYS:
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
            printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            turns[way].append(json.loads(printed.splitlines()[-1]))
    for variant in COMPARED:
        for way, measurements in turns.items():
            milliseconds, faults, rate = (
                statistics.median(numbers)
                for numbers in zip(*(turn[variant] for turn in measurements), strict=True)
            )
            print(
                f"{variant:<12}{way:<22}{milliseconds:>9.2f} ms an update"
                f"{faults:>10,.0f} page faults{rate:>10,.0f} steps/s"
            )


if __name__ == "__main__":
    main()
