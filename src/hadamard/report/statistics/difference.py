"""The difference between two variants with the 95 % interval that every comparison is decided by.

The aggregate of our variant minus that of another on the same tasks is in points, or in percent of
the other's aggregate. The aggregate of one variant (a level) gets the same interval. Pages say
"higher" if the interval lies above 0, "lower" if it lies below, and otherwise "no difference
shown"; what it says about the paper's claims is in `judgement`. How the interval is computed is in
`widened_bootstrap`.

``benchmarks/error_rates.py`` simulates how often equal variants are declared different; the results
are in docs/reproduce.md. They hold for one comparison: of twenty on a page, about one shows a
difference by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hadamard.report.statistics.aggregates import Aggregate
from hadamard.report.statistics.estimates import RESAMPLES, Band, Estimate
from hadamard.report.statistics.task_scores import (
    RunLayout,
    ScoresByTask,
    checked_scores,
    paired_scores,
)
from hadamard.report.statistics.widened_bootstrap import (
    TASKS_TO_RESAMPLE,
    Unit,
    difference_bands,
)
from hadamard.text import count_range, counted

MIN_SEEDS = 3
"""Seeds per side in every task, where only seeds are drawn; the spread of two is too uncertain."""
RAREST_CHANCE = 0.05
"""Where only seeds are drawn, a result must be rarer by chance than this. If runs of equal variants
were shuffled between the sides, the sides would not overlap, in every task and in the same order,
in 2 of prod binomial(n + m, n) cases. If that is more often than this, no outcome is a result.
This requires 4 seeds per side on one task; from two tasks on, `MIN_SEEDS` requires more."""

Kind = Literal["difference", "level"]
Outcome = Literal["higher", "lower", "no difference shown"]


@dataclass(frozen=True)
class Difference:
    """How much higher our aggregate is than theirs, or how high ours is, with its interval."""

    estimate: Estimate
    """The bounds are NaN where nothing can be decided."""
    unit: Unit
    """Points of the aggregate, or percent of their aggregate."""
    tasks: int
    seeds: tuple[int, int]
    """The lowest and the highest number of seeds of any task on either side."""
    resampled: Literal["seeds", "tasks"]
    too_few: str
    """Why nothing can be decided; empty if something can."""
    kind: Kind = "difference"
    """Whether two variants are compared, or the aggregate of one is estimated."""

    @property
    def outcome(self) -> Outcome:
        """How our aggregate compares with theirs, for a page without claims."""
        if self.estimate.low > 0:
            return "higher"
        return "lower" if self.estimate.high < 0 else "no difference shown"

    def sentence(self, ours: str, theirs: str) -> str:
        """Return a sentence that compares two variants' scores, given their names.

        Examples:
            >>> difference = Difference(Estimate(1, 0.5, 2), "points", 1, (5, 5), "seeds", "")
            >>> difference.sentence("tanh + HR", "tanh")
            'tanh + HR scored higher than tanh: difference 1 (0.5 to 2), 5 seeds on 1 task.'
        """
        comparison = f"{ours} scored {self.outcome} than {theirs}"
        if self.outcome == "no difference shown":
            reason = f", {self.too_few}" if self.too_few else ""
            comparison = f"{ours} against {theirs}, {self.outcome}{reason}"
        return f"{comparison}: difference {self.interval}, {self.evidence}."

    @property
    def interval(self) -> str:
        """The estimate with its interval and unit, as text.

        Examples:
            >>> estimate = Estimate(12.0, 3.5, 20.25)
            >>> Difference(estimate, "percent", 7, (1, 1), "tasks", "").interval
            '12 % (3.5 to 20.2)'
        """
        value, low, high = map(short_number, self.estimate)
        unit = " %" if self.unit == "percent" else ""
        bounds = f"{low} to {high}" if self.estimate.has_interval else "no interval"
        return f"{value}{unit} ({bounds})"

    @property
    def evidence(self) -> str:
        """The numbers of seeds and tasks, as text.

        Examples:
            >>> Difference(Estimate(1, 0, 2), "points", 1, (4, 5), "seeds", "").evidence
            '4 to 5 seeds on 1 task'
        """
        return f"{count_range(self.seeds, 'seed')} on {counted(self.tasks, 'task')}"


def difference(
    ours: ScoresByTask,
    theirs: ScoresByTask,
    aggregate: str | Aggregate = "mean",
    *,
    unit: Unit = "points",
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Difference:
    """Return our aggregate minus theirs on the same tasks, with its interval.

    A percentage is of the magnitude of their aggregate, and has no interval where that may be zero
    or of either sign. The sign is that of the aggregate: an optimality gap that falls is a negative
    difference.

    Examples:
        >>> good, bad = [[8.0, 9.0, 10.0, 9.5]], [[3.0, 4.0, 5.0, 4.5]]
        >>> result = difference(good, bad, rng=np.random.default_rng(0))
        >>> result.estimate.value, result.outcome, result.evidence
        (5.0, 'higher', '4 seeds on 1 task')
        >>> difference(good, [[3.0, 4.0]], rng=np.random.default_rng(0)).too_few
        'too few seeds (2; a single task needs 4 a side)'
    """
    if unit not in ("points", "percent"):
        raise ValueError(f"unit must be 'points' or 'percent', got {unit!r}")
    pairs = paired_scores(ours, theirs)
    counts = [[side.size for side in pair] for pair in pairs]
    sides = [np.concatenate(side) for side in zip(*pairs, strict=True)]
    layouts = [RunLayout(np.array(side)) for side in zip(*counts, strict=True)]
    band = difference_bands(sides, layouts, aggregate, unit=unit, rng=rng, resamples=resamples)
    too_few = _too_few(counts)
    if not too_few and math.isnan(band.low):
        too_few = "the baseline's aggregate may be zero, so there is no percentage of it"
    return _difference(band, unit, counts, too_few, "difference")


def level(
    values: ScoresByTask,
    aggregate: str | Aggregate = "mean",
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Difference:
    """Return the aggregate of one variant with the same kind of interval.

    Examples:
        >>> dormant = level([[0.6, 0.62, 0.64]], rng=np.random.default_rng(0))
        >>> round(dormant.estimate.value, 2), dormant.kind
        (0.62, 'level')
    """
    tasks = list(checked_scores(values).values())
    counts = [[task.size] for task in tasks]
    layouts = [RunLayout(np.array([task.size for task in tasks]))]
    sides = [np.concatenate(tasks)]
    band = difference_bands(sides, layouts, aggregate, unit="points", rng=rng, resamples=resamples)
    return _difference(band, "points", counts, _too_few(counts), "level")


def _too_few(counts: list[list[int]]) -> str:
    """Return why there are too few seeds for any result, or nothing.

    ``counts`` are the seeds of each task, for each side.
    """
    if len(counts) >= TASKS_TO_RESAMPLE:
        return ""
    fewest, two_sides = min(map(min, counts)), len(counts[0]) == 2
    chance = 2 / math.prod(math.comb(sum(seeds), seeds[0]) for seeds in counts)
    if fewest >= MIN_SEEDS and (chance <= RAREST_CHANCE or not two_sides):
        return ""
    needed = "a single task needs 4" if len(counts) == 1 else f"each task needs {MIN_SEEDS}"
    if not two_sides:
        return f"too few seeds ({fewest}; a level needs {MIN_SEEDS} on each task)"
    return f"too few seeds ({fewest}; {needed} a side)"


def _difference(
    band: Band,
    unit: Unit,
    counts: list[list[int]],
    too_few: str,
    kind: Kind,
) -> Difference:
    value, low, high = (float(part) for part in band)
    if too_few:
        low = high = math.nan
    seeds = min(map(min, counts)), max(map(max, counts))
    resampled: Literal["seeds", "tasks"] = "seeds" if len(counts) < TASKS_TO_RESAMPLE else "tasks"
    estimate = Estimate(value, low, high)
    return Difference(estimate, unit, len(counts), seeds, resampled, too_few, kind)


def short_number(value: float) -> str:
    """Return a number with three digits, or as a whole number from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:z.3g}"
