"""Whole training on Atari with the emulators on a GPU and on the CPU, in one run.

    python benchmarks/bench_atari_fleet.py                               # one GPU, some minutes
    python benchmarks/bench_atari_fleet.py --cases pqn-one ppo-variants --seconds 5

The cases, each a number of environment steps per second of all its runs together, diagnoses and
records included:

- ``pqn-one``: one run of PQN with 128 environments, with the emulators of the GPU and, beside it,
  of the CPU (worker processes; their rate varies with the number of cores).
- ``pqn-games``: a run of PQN on each of eight games with ReLU, then with tanh + HR.
- ``pqn-seeds``: four seeds of PQN on one game, as one fleet, and in halves of which one learns
  while the other plays.
- ``ppo-variants``: runs of PPO on each of eight games with ReLU, tanh and tanh + HR, 8
  environments each.
- ``ppo-games``: a run of PPO on each of eight games with ReLU, then with tanh + HR.

Games with as many actions are one fleet; the fleets take turns on streams of their own, so that one
learns while another plays. "playing" and "learning" are what they take alone, one after the other,
as a share of the measured time: more than 100 % in all is overlap.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from hadamard.core.config import RunSpec, overridden
from hadamard.experiments.bench import VARIANTS, TimedTraining, Timing
from hadamard.experiments.fleet_bench import TimedFleets
from hadamard.training.start import default_spec
from timing import machine

GAMES = (
    *("Asterix", "BeamRider", "Breakout", "MsPacman"),
    *("Qbert", "Seaquest", "SpaceInvaders", "VideoPinball"),
)
CASES = ("pqn-one", "pqn-seeds", "pqn-games", "ppo-variants", "ppo-games")
Measured = TimedFleets | TimedTraining


def spec_of(
    algorithm: str, game: str, variant: str, emulators: str, changes: dict[str, Any]
) -> RunSpec[Any]:
    """Return the settings of a run; they are the algorithm's own but for the emulators."""
    settings = {**VARIANTS[variant], "train.emulators": emulators, **changes}
    spec: RunSpec[Any] = overridden(default_spec(algorithm, f"atari/{game}"), settings)
    return spec


def fleets(algorithm: str, games: list[str], variants: list[str], **options: Any) -> TimedFleets:
    """Return a run of each variant on each game, in fleets."""
    folder = Path(options["folder"]) / f"{algorithm}-{len(os.listdir(options['folder']))}"
    specs = [
        spec_of(algorithm, game, variant, "gpu", options["changes"])
        for variant in variants
        for game in games
    ]
    return TimedFleets(algorithm, specs, folder)


def ways_of(case: str, games: list[str], **options: Any) -> dict[str, Callable[[], Measured]]:
    """Return what a case compares, by its label."""
    folder, changes = Path(options["folder"]), options["changes"]
    if case == "pqn-one":
        on_cpu = spec_of("pqn", games[0], "ReLU", "cpu", {**changes, "train.fleet": "off"})
        return {
            "emulators on the GPU": lambda: fleets("pqn", games[:1], ["ReLU"], **options),
            "emulators on the CPU": lambda: TimedTraining("pqn", on_cpu, folder / "cpu"),
        }
    algorithm = case.partition("-")[0]
    if case == "pqn-seeds":
        seeds = [
            spec_of("pqn", games[0], "ReLU", "gpu", {**changes, "seed": seed}) for seed in range(4)
        ]
        return {
            "one fleet": lambda: TimedFleets("pqn", seeds, folder / "one", halves=False),
            "two halves": lambda: TimedFleets("pqn", seeds, folder / "halves"),
        }
    if case == "ppo-variants":
        return {"ReLU, tanh, tanh + HR": lambda: fleets(algorithm, games, [*VARIANTS], **options)}
    return {
        variant: lambda variant=variant: fleets(algorithm, games, [variant], **options)  # type: ignore[misc]
        for variant in ("ReLU", "tanh + HR")
    }


def measure(case: str, games: list[str], seconds: float, turns: int, **options: Any) -> None:
    """Measure a case and print it."""
    with ExitStack() as stack:
        ways: dict[str, Measured] = {}
        for label, create in ways_of(case, games, **options).items():
            ways[label] = stack.enter_context(closing(create()))
            seconds_before = ways[label].setup_seconds
            print(f"  {case}: {label} ready in {seconds_before:.0f} s", flush=True)
        timings: dict[str, list[Timing]] = {label: [] for label in ways}
        for _ in range(turns):
            for label, way in ways.items():
                timings[label].append(way.measure(seconds))
        first = next(iter(ways))
        medians = {
            label: statistics.median(timing.rate for timing in own)
            for label, own in timings.items()
        }
        for label, own in timings.items():
            way, last = ways[label], own[-1]
            rates = [timing.rate for timing in own]
            parts = ", ".join(f"{name} {s / last.seconds:.0%}" for name, s in last.parts.items())
            shape = ""
            if isinstance(way, TimedFleets):
                runs, count = len(way.trainers), len(way.fleets)
                shape = f"{runs} runs in {count} fleets, {way.environments} games; "
            print(
                f"{case:<13}{label:<24}{medians[label]:>10,.0f} steps/s "
                f"({min(rates):,.0f} to {max(rates):,.0f}), "
                f"{medians[label] / medians[first]:.2f}x {first}; {shape}{parts}",
                flush=True,
            )


def main() -> None:
    """Measure the cases one after another."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--games", nargs="*", default=GAMES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="more settings")
    options = parser.parse_args()
    changes = {"device": options.device, **dict(text.split("=", 1) for text in options.set)}
    print(f"{machine()}, {os.cpu_count()} cores; {', '.join(options.games)}", flush=True)
    for case in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            measure(
                case, list(options.games), options.seconds, options.turns,
                folder=folder, changes=changes,
            )  # fmt: skip


if __name__ == "__main__":
    main()
