"""What each remedy costs: the time of training with it over that without, on one device.

    python benchmarks/bench_remedies.py [--device auto] [--env minatar/breakout] [--runs 5]
        [--seconds 2] [--algorithms pqn dqn] [--compile auto] [--remedies redo upgd ...]

A fleet without remedies and one with the remedy take turns, a few times, after both have been set
up; the table has the median of the ratios. Diagnoses are left out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from hadamard import plasticity
from hadamard.experiments.fleet_bench import TimedFleet
from timing import machine

TURNS = 3
NORMED = {"net.norm": "layer", "net.where": "all"}
VARIANTS = "ReLU", "tanh + HR"


def main() -> None:
    """Measure all remedies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--algorithms", nargs="+", default=["pqn", "dqn"])
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--remedies", nargs="+", default=list(plasticity.names()))
    flags = parser.parse_args()
    print(machine())
    print("| algorithm | network | remedy | steps/s without | steps/s with | time |")
    print("|---|---|---|---|---|---|")
    for algorithm in flags.algorithms:
        for variant in VARIANTS:
            for remedy in flags.remedies:
                print(row(flags, algorithm, variant, remedy), flush=True)


def row(flags: argparse.Namespace, algorithm: str, variant: str, remedy: str) -> str:
    """Measure one remedy and return its row."""
    shared = {"train.compile": flags.compile, "train.health_every": 0}
    shared |= NORMED if remedy == "nap" else {}
    with tempfile.TemporaryDirectory() as name:
        fleets: list[TimedFleet] = []
        for own in ({}, {"remedy": remedy}):
            folder = Path(name, str(len(fleets)))
            setting = algorithm, flags.env, variant, flags.runs, flags.device, folder
            fleets.append(TimedFleet(*setting, {**shared, **own}))
        with closing(fleets[0]), closing(fleets[1]):
            rates: list[list[float]] = [[], []]
            for _ in range(TURNS):
                for fleet, own_rates in zip(fleets, rates, strict=True):
                    timing = fleet.measure(flags.seconds)
                    own_rates.append(timing.steps / timing.seconds)
    ratio = statistics.median(a / b for a, b in zip(*rates, strict=True))
    without, with_it = (statistics.median(own) for own in rates)
    cells = algorithm, variant, remedy, f"{without:,.0f}", f"{with_it:,.0f}", f"{ratio:.2f}x"
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
