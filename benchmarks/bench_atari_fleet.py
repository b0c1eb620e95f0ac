"""Whole training on Atari with the emulators on a GPU and on the CPU, in one run.

    python benchmarks/bench_atari_fleet.py                               # one GPU, some minutes
    python benchmarks/bench_atari_fleet.py --cases pqn-one ppo-variants --seconds 5

The cases, each a number of environment steps per second of all its runs together, diagnoses and
records included:

- ``pqn-one``: one run of PQN with 128 environments, with the emulators of the GPU and, beside it,
  of the CPU (worker processes; their rate varies with the number of cores).
- ``pqn-games``: a run of PQN on each of eight games with ReLU, then with tanh + HR.
- ``pqn-seeds``: four seeds of PQN on one game, as one fleet.
- ``ppo-variants``: runs of PPO on each of eight games with ReLU, tanh and tanh + HR, 8
  environments each.
- ``ppo-games``: a run of PPO on each of eight games with ReLU, then with tanh + HR.

All are set up side by side, each in a process of its own; then one after the other is measured
while the rest waits. Games with as many actions are one fleet; the fleets take turns on streams of
their own, so that one learns while another plays. "playing" and "learning" are what they take
alone, one after the other, as a share of the measured time: more than 100 % in all is overlap.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from hadamard.core.config import RunSpec, overridden
from hadamard.experiments.bench import VARIANTS, TimedTraining, Timing
from hadamard.experiments.fleet_bench import TimedFleets
from hadamard.training.start import default_spec
from standby import Standby
from timing import machine

GAMES = (
    *("Asterix", "BeamRider", "Breakout", "MsPacman"),
    *("Qbert", "Seaquest", "SpaceInvaders", "VideoPinball"),
)
CASES = ("pqn-one", "pqn-seeds", "pqn-games", "ppo-variants", "ppo-games")


def spec_of(
    algorithm: str, game: str, variant: str, emulators: str, changes: dict[str, Any]
) -> RunSpec[Any]:
    """Return the settings of a run; they are the algorithm's own but for the emulators."""
    settings = {**VARIANTS[variant], "train.emulators": emulators, **changes}
    spec: RunSpec[Any] = overridden(default_spec(algorithm, f"atari/{game}"), settings)
    return spec


class Way:
    """Runs that train together, in a folder that is gone afterwards."""

    def __init__(
        self, algorithm: str, specs: Sequence[RunSpec[Any]], *, in_fleets: bool = True
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._timed: TimedFleets | TimedTraining
        if not in_fleets:
            self._timed, self.shape = TimedTraining(algorithm, specs[0], folder), ""
        else:
            fleets = TimedFleets(algorithm, specs, folder)
            runs, count = len(fleets.trainers), len(fleets.fleets)
            self.shape = f"{runs} runs in {count} fleets, {fleets.environments} games; "
            self._timed = fleets
        self.setup_seconds, self.measure = self._timed.setup_seconds, self._timed.measure

    def close(self) -> None:
        """Free it."""
        self._timed.close()
        self._folder.cleanup()


def specs_of(
    algorithm: str, games: Sequence[str], variants: Sequence[str], changes: dict[str, Any]
) -> list[RunSpec[Any]]:
    """Return a run of each variant on each game."""
    return [
        spec_of(algorithm, game, variant, "gpu", changes) for variant in variants for game in games
    ]


def ways_of(case: str, games: list[str], changes: dict[str, Any]) -> dict[str, Callable[[], Way]]:
    """Return what a case compares, by its label."""
    algorithm = case.partition("-")[0]
    if case == "pqn-one":
        alone = spec_of("pqn", games[0], "ReLU", "cpu", {**changes, "train.fleet": "off"})
        return {
            "emulators on the GPU": partial(
                Way, "pqn", specs_of("pqn", games[:1], ["ReLU"], changes)
            ),
            "emulators on the CPU": partial(Way, "pqn", [alone], in_fleets=False),
        }
    if case == "pqn-seeds":
        seeds = [
            spec_of("pqn", games[0], "ReLU", "gpu", {**changes, "seed": seed}) for seed in range(4)
        ]
        return {"four seeds": partial(Way, "pqn", seeds)}
    if case == "ppo-variants":
        own = specs_of(algorithm, games, [*VARIANTS], changes)
        return {"ReLU, tanh, tanh + HR": partial(Way, algorithm, own)}
    return {
        variant: partial(Way, algorithm, specs_of(algorithm, games, [variant], changes))
        for variant in ("ReLU", "tanh + HR")
    }


def measure(case: str, ways: dict[str, Standby], seconds: float, turns: int) -> None:
    """Measure a case and print it."""
    shapes = {}
    for label, way in list(ways.items()):
        ready = way.wait()
        if ready is None:
            print(f"{case}: {label} failed, see above", flush=True)
            del ways[label]
            continue
        setup_seconds, shapes[label] = ready
        print(f"  {case}: {label} ready in {setup_seconds:.0f} s", flush=True)
    timings: dict[str, list[Timing]] = {label: [] for label in ways}
    for _ in range(turns):
        for label, way in ways.items():
            timings[label].append(way.measure(seconds))
    medians = {
        label: statistics.median(timing.rate for timing in own) for label, own in timings.items()
    }
    for label, own in timings.items():
        first, last = next(iter(ways)), own[-1]
        rates = [timing.rate for timing in own]
        parts = ", ".join(f"{name} {s / last.seconds:.0%}" for name, s in last.parts.items())
        print(
            f"{case:<13}{label:<24}{medians[label]:>10,.0f} steps/s "
            f"({min(rates):,.0f} to {max(rates):,.0f}), "
            f"{medians[label] / medians[first]:.2f}x {first}; {shapes[label]}{parts}",
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
    with ExitStack() as stack:
        ways = {
            case: {
                label: stack.enter_context(closing(Standby(create)))
                for label, create in ways_of(case, list(options.games), changes).items()
            }
            for case in options.cases
        }
        for way in (way for own in ways.values() for way in own.values()):
            way.wait()  # nothing is measured while others compile
        for case, own in ways.items():
            measure(case, own, options.seconds, options.turns)
            for way in own.values():
                way.close()


if __name__ == "__main__":
    main()
