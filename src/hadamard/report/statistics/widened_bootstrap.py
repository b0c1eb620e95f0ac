"""The interval of a difference or a level: a bootstrap, widened for few seeds and tasks.

It starts from a percentile bootstrap of the difference itself. With fewer than
`TASKS_TO_RESAMPLE` tasks, seeds are drawn with replacement within each task and side: the interval
is about these tasks only, and needs several seeds. With more tasks, tasks are drawn instead: a
drawn task contributes both sides with all of their seeds. The means of tasks differ by the tasks
and by the noise of their seeds, so the noise is in the interval; if seeds were drawn too, it would
be in it twice. The interval is then about tasks like these, and one seed per task can decide.

A bootstrap of n units sees only (n - 1) / n of their variance, and ignores how uncertain that
variance is. So the distance of every draw from the estimate is multiplied by

    t / 1.96 * sqrt(n / (n - 1)),

t being the 97.5 % point of Student's distribution. Where tasks are drawn, n is their number, with
n - 1 degrees of freedom. Where only seeds are drawn, they come from several samples, one for each
task and side, so both factors are Welch's: degrees of freedom after Welch and Satterthwaite, and
n / (n - 1) weighted by each sample's part in the variance of the mean. One task whose scores vary
far more than the others' then counts as the one sample it is. A task's variance is estimated from
both sides together where that is larger, since few skewed scores of one side may happen to lie
close together. The factor is exact for means and an approximation for other aggregates.

Percentages are computed from the widened draws, so they never have another sign than the
difference in points, and they include the baseline's own uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from hadamard.report.data.series import FloatArray, IntArray
from hadamard.report.statistics.aggregates import Aggregate, find_aggregate
from hadamard.report.statistics.estimates import (
    CONFIDENCE,
    RESAMPLES,
    Band,
    check_resampling,
    student_t,
)
from hadamard.report.statistics.task_scores import RunLayout

TASKS_TO_RESAMPLE = 6
"""From this many tasks on, tasks are drawn instead of seeds."""

Unit = Literal["points", "percent"]


def difference_bands(
    sides: Sequence[FloatArray],
    layouts: Sequence[RunLayout],
    aggregate: str | Aggregate,
    *,
    unit: Unit,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Band:
    """Return the differences of two sides, or the levels of one, with their intervals.

    The last axis of a side holds the runs of all tasks. Other axes are separate experiments with
    the same layout, for which the same draws are used: simulations need them. Whether there are
    enough seeds is not checked.
    """
    check_resampling(resamples, CONFIDENCE)
    compute = find_aggregate(aggregate).compute
    positions = _resampled_positions(layouts, rng, resamples)
    values = [compute(side, layout) for side, layout in zip(sides, layouts, strict=True)]
    draws = [
        compute(side[..., position], layout)
        for side, layout, position in zip(sides, layouts, positions, strict=True)
    ]
    # Draws are widened before they are compared: a percentage then never has another sign than
    # the difference in points, and the baseline's own uncertainty is widened with it.
    factor = _widening(sides, layouts)
    draws = [
        value[..., None] + factor[..., None] * (draw - value[..., None])
        for value, draw in zip(values, draws, strict=True)
    ]
    value, lows = values[0], draws[0]
    if len(sides) == 2:
        value, lows = value - values[1], lows - draws[1]
    highs = lows
    if unit == "percent":
        same_sign = np.sign(draws[1]) == np.sign(values[1])[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):
            value = 100 * value / np.where(values[1] == 0, np.nan, np.abs(values[1]))
            percent = 100 * lows / np.abs(draws[1])
        # Where the drawn baseline is zero or of the other sign, the percentage is unbounded.
        lows = np.where(same_sign, percent, -np.inf)
        highs = np.where(same_sign, percent, np.inf)
    low = np.quantile(lows, (1 - CONFIDENCE) / 2, axis=-1, method="lower")
    high = np.quantile(highs, (1 + CONFIDENCE) / 2, axis=-1, method="higher")
    unknown = np.isinf(low) | np.isinf(high)
    # A skewed bootstrap may lie wholly on one side of the estimate: extend the interval to it.
    low = np.where(unknown, np.nan, np.minimum(low, value))
    high = np.where(unknown, np.nan, np.maximum(high, value))
    return Band(*(np.asarray(part) for part in (value, low, high)))


def _resampled_positions(
    layouts: Sequence[RunLayout], rng: np.random.Generator, resamples: int
) -> list[IntArray]:
    """Draw the runs of each side with replacement; return positions in its row, (resamples, runs).

    A task that is drawn in place of another contributes as many seeds as the other has, in turn.
    """
    tasks = len(layouts[0].counts)
    if tasks < TASKS_TO_RESAMPLE:
        return [layout.resampled(rng, resamples) for layout in layouts]
    drawn_tasks = rng.integers(tasks, size=(resamples, tasks))
    positions = []
    for layout in layouts:
        task = np.repeat(drawn_tasks, layout.counts, axis=1)
        first = np.repeat(rng.integers(layout.counts[drawn_tasks]), layout.counts, axis=1)
        turn = np.arange(layout.total) - np.repeat(layout.starts, layout.counts)
        positions.append(layout.starts[task] + (first + turn) % layout.counts[task])
    return positions


def _widening(sides: Sequence[FloatArray], layouts: Sequence[RunLayout]) -> FloatArray:
    """Return the factor for the distances of draws from the estimate, see the module's docstring.

    NaN where a variance is unknown because a task has one seed.
    """
    normal_quantile = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    tasks = len(layouts[0].counts)
    if tasks >= TASKS_TO_RESAMPLE:
        return np.asarray(student_t(tasks - 1) / normal_quantile * math.sqrt(tasks / (tasks - 1)))
    counts = np.stack([layout.counts for layout in layouts])
    if counts.min() < 2:
        return np.asarray(math.nan)
    squares = np.stack(
        [_squares(side, layout) for side, layout in zip(sides, layouts, strict=True)], axis=-2
    )
    # The part of each sample, (sides, tasks), in the variance of the mean; 1 if no sample varies.
    parts = squares / (counts - 1) / counts
    parts = np.where((parts == 0).all(axis=(-2, -1), keepdims=True), 1.0, parts)
    total = parts.sum(axis=(-2, -1))
    freedom = total**2 / (parts**2 / (counts - 1)).sum(axis=(-2, -1))
    pooled = squares.sum(axis=-2) / (counts - 1).sum(axis=0) * (1 / counts).sum(axis=0)
    variance = np.maximum(parts.sum(axis=-2), pooled).sum(axis=-1)
    bootstrap_variance = (parts * (counts - 1) / counts).sum(axis=(-2, -1))
    whole_freedom = np.floor(freedom + 1e-9).astype(int)
    t = np.array([math.nan, *(student_t(n) for n in range(1, int(whole_freedom.max()) + 1))])
    return np.asarray(t[whole_freedom] / normal_quantile * np.sqrt(variance / bootstrap_variance))


def _squares(side: FloatArray, layout: RunLayout) -> FloatArray:
    """Return each task's sum of squared deviations from its mean."""
    means = np.add.reduceat(side, layout.starts, axis=-1) / layout.counts
    deviations = side - np.repeat(means, layout.counts, axis=-1)
    return np.asarray(np.add.reduceat(deviations**2, layout.starts, axis=-1))
