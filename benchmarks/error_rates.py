"""How often the decision rule tells equal variants apart, and how often it finds an effect.

    python benchmarks/error_rates.py           # 10 to 20 minutes on one core

For every design (tasks and seeds) 2,000 experiments are simulated with each kind of scores,
aggregate and unit, and the claim "ours is higher" and the claim "ours is lower" are judged as
`hadamard.report.statistics.judgement` judges them. Power is of the claim "higher" where ours is
better by 1, 2 and 3 standard deviations of a seed (normal scores, mean, points). The table is the
one of docs/reproduce.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hadamard.report.statistics.task_scores import RunLayout
from hadamard.report.statistics.widened_bootstrap import TASKS_TO_RESAMPLE, Unit, difference_bands

FloatArray = npt.NDArray[np.float64]
Generator = np.random.Generator
Sides = list[FloatArray]

EXPERIMENTS = 2000
RESAMPLES = 400
"""Fewer than a report's: bounds of fewer draws are noisier, so errors are if anything likelier."""
LIMIT = 0.05
_AT_ONCE = 4_000_000


class Design(NamedTuple):
    """The number of seeds by task, of either side."""

    name: str
    ours: Sequence[int]
    theirs: Sequence[int]


def even(tasks: int, seeds: int) -> Design:
    """Return a design with as many seeds everywhere."""
    return Design(f"{tasks} × {seeds}", [seeds] * tasks, [seeds] * tasks)


DESIGNS = (
    even(1, 4),
    even(1, 5),
    even(1, 10),
    Design("1 × 3 against 5", [3], [5]),
    Design("1 × 4 against 10", [4], [10]),
    even(2, 3),
    even(3, 3),
    even(5, 5),
    Design("5 × 3 to 7", [3, 4, 5, 6, 7], [5, 5, 3, 7, 4]),
    even(6, 1),
    even(7, 1),
    even(7, 5),
    even(8, 2),
    Design("8 × 1 to 4", [1, 2, 3, 4, 1, 2, 3, 4], [4, 1, 2, 2, 3, 1, 3, 1]),
    even(14, 1),
    even(14, 5),
    even(51, 1),
)


class Tasks(NamedTuple):
    """What the tasks of all experiments have in common for both variants."""

    level: FloatArray
    """(experiments, tasks), between 0 and 1."""
    scale: FloatArray
    """(experiments, tasks), from 0.03 to 30."""


SCORES = (
    "normal",
    "lognormal",
    "Student's t, 2 degrees",
    "scales from 0.03 to 30",
    "shares",
    "shares, often 0",
    "task-by-variant interaction",
    "one side three times as noisy",
)


def scores_of(
    rng: Generator, scores: str, tasks: Tasks, task: npt.NDArray[np.int64], side: int
) -> FloatArray:
    """Draw the scores of one side, (experiments, runs); ``task`` is that of each run."""
    level = tasks.level[:, task]
    if scores == "lognormal":
        return (1 + level) * rng.lognormal(size=level.shape)
    if scores == "Student's t, 2 degrees":
        return 10 + 4 * level + rng.standard_t(2, size=level.shape)
    if scores == "one side three times as noisy":
        return 8 + 4 * level + (3 if side == 0 else 1) * rng.normal(size=level.shape)
    if scores in ("shares", "shares, often 0"):
        mean = 0.05 + 0.6 * level
        shares = rng.beta(3 * mean, 3 * (1 - mean))
        return shares if scores == "shares" else shares * (rng.random(shares.shape) < 0.6)
    normal = 3 + 4 * level + rng.normal(size=level.shape)
    if scores == "scales from 0.03 to 30":
        return tasks.scale[:, task] * normal
    if scores == "task-by-variant interaction":
        # A variant is better on some tasks and worse on others, as likely one as the other.
        effects = rng.normal(size=tasks.level.shape)
        if effects.shape[1] < TASKS_TO_RESAMPLE:
            # The rule then speaks of these very tasks: equal variants are equal on average.
            effects -= effects.mean(axis=1, keepdims=True)
        return normal + effects[:, task]
    return normal


AGGREGATES = ("mean", "median", "median_of_runs", "iqm", "iqm_of_task_means")
UNITS: tuple[Unit, ...] = ("points", "percent")


def fits(design: Design, scores: str, aggregate: str) -> bool:
    """Whether equal variants of such scores have equal aggregates, and it is worth a row."""
    tasks = len(design.ours)
    if scores == "task-by-variant interaction":
        return tasks >= TASKS_TO_RESAMPLE or (tasks > 1 and aggregate == "mean")
    return tasks > 1 or aggregate in ("mean", "median_of_runs", "iqm")


def experiments(rng: Generator, design: Design, scores: str, count: int) -> Sides:
    """Simulate equal variants: the scores of both sides, (experiments, runs)."""
    shape = count, len(design.ours)
    tasks = Tasks(rng.random(shape), 10 ** rng.uniform(-1.5, 1.5, shape))
    return [
        scores_of(rng, scores, tasks, np.repeat(np.arange(len(seeds)), seeds), side)
        for side, seeds in enumerate((design.ours, design.theirs))
    ]


def judged(
    rng: Generator, design: Design, sides: Sides, aggregate: str, unit: Unit
) -> tuple[float, float]:
    """Return how often "higher" and "lower" are supported."""
    layouts = [RunLayout(np.array(seeds)) for seeds in (design.ours, design.theirs)]
    size = max(1, _AT_ONCE // (RESAMPLES * sides[0].shape[1]))
    higher = lower = 0
    for start in range(0, len(sides[0]), size):
        some = [side[start : start + size] for side in sides]
        band = difference_bands(some, layouts, aggregate, unit=unit, rng=rng, resamples=RESAMPLES)
        higher += int((band.low > 0).sum())
        lower += int((band.high < 0).sum())
    return higher / len(sides[0]), lower / len(sides[0])


class Row(NamedTuple):
    """How often a design supports a claim with one kind of scores."""

    design: str
    scores: str
    aggregate: str
    unit: Unit
    higher: float
    lower: float

    @property
    def error(self) -> float:
        """The rate of the claim that is wrongly supported more often."""
        return max(self.higher, self.lower)


def error_rates(
    design: Design,
    scores: Sequence[str] = SCORES,
    aggregates: Sequence[str] = AGGREGATES,
    units: Sequence[Unit] = UNITS,
) -> Iterator[Row]:
    """Simulate equal variants in one design."""
    for name in scores:
        rng = np.random.default_rng([sum(map(ord, design.name)), SCORES.index(name)])
        sides = experiments(rng, design, name, EXPERIMENTS)
        for aggregate in aggregates:
            for unit in units:
                if fits(design, name, aggregate):
                    rates = judged(rng, design, sides, aggregate, unit)
                    yield Row(design.name, name, aggregate, unit, *rates)


def power(design: Design, effect: float, aggregate: str = "mean") -> float:
    """Return how often an effect of so many standard deviations of a seed is found."""
    rng = np.random.default_rng(sum(map(ord, design.name)))
    ours, theirs = experiments(rng, design, "normal", EXPERIMENTS)
    return judged(rng, design, [ours + effect, theirs], aggregate, "points")[0]


def coverage(design: Design, scores: str, aggregate: str = "mean") -> tuple[float, float]:
    """Return how often the interval of equal variants holds 0, and its median width, in points."""
    layouts = [RunLayout(np.array(seeds)) for seeds in (design.ours, design.theirs)]
    sides = experiments(np.random.default_rng(1), design, scores, 400)
    band = difference_bands(
        sides, layouts, aggregate, unit="points", rng=np.random.default_rng(2), resamples=RESAMPLES
    )
    holds = (band.low <= 0) & (band.high >= 0)
    return float(holds.mean()), float(np.median(band.high - band.low))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--all", action="store_true", help="print every kind of scores")
    parser.add_argument("--coverage", action="store_true", help="print how often intervals hold")
    options = parser.parse_args()
    if options.coverage:
        for design in DESIGNS:
            for scores in ("normal", "task-by-variant interaction"):
                if fits(design, scores, "mean"):
                    holds, width = coverage(design, scores)
                    print(f"{design.name}, {scores}: holds {holds:.1%}, {width:.3f} wide")
        return
    start = time.perf_counter()
    heads = ["tasks × seeds", *AGGREGATES, "worst case", "power 1", "2", "3"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for design in DESIGNS:
        rows = list(error_rates(design))
        if options.all:
            for row in rows:
                print(f"{row.design} | {row.scores} | {row.aggregate} | {row.unit} | "
                      f"{row.higher:.1%} | {row.lower:.1%}", flush=True)  # fmt: skip
        worst = max(rows, key=lambda row: row.error)
        errors = {name: [row.error for row in rows if row.aggregate == name] for name in AGGREGATES}
        cells = [
            design.name,
            *(f"{100 * max(rates):.1f}" if rates else "–" for rates in errors.values()),
            f"{worst.scores}, {worst.aggregate}, {worst.unit}",
            *(f"{100 * power(design, effect):.0f}" for effect in (1, 2, 3)),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
