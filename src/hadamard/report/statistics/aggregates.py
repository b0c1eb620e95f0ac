"""Aggregates: one number for the scores of all tasks, such as the mean or the IQM.

Every task counts the same, however many seeds it has, so that a missing run does not pull an
aggregate towards the other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hadamard.report.data.series import FloatArray
from hadamard.report.statistics.task_scores import RunLayout
from hadamard.text import unknown

AggregateFunction = Callable[[FloatArray, RunLayout], FloatArray]
"""Aggregates the last axis, in which the runs of all tasks lie; other axes stay."""


def _task_means(values: FloatArray, layout: RunLayout) -> FloatArray:
    sums: FloatArray = np.add.reduceat(values, layout.starts, axis=-1)
    return sums / layout.counts


def _trimmed_mean(values: FloatArray, layout: RunLayout, cut: int) -> FloatArray:
    """Return the mean without the ``cut`` lowest and the ``cut`` highest runs.

    If tasks have different numbers of seeds, the weight of ``cut`` average runs is removed at
    each end instead, and a run at the border counts in part.
    """
    if layout.even:
        middle = np.sort(values, axis=-1)[..., cut : layout.total - cut]
        return np.asarray(middle.mean(axis=-1))
    order = np.argsort(values, axis=-1)
    weights = layout.weights[order]
    cumulative = np.cumsum(weights, axis=-1)
    low, high = cut / layout.total, 1 - cut / layout.total
    middle_weights = np.clip(cumulative, low, high) - np.clip(cumulative - weights, low, high)
    ordered = np.take_along_axis(values, order, axis=-1)
    return np.asarray((ordered * middle_weights).sum(axis=-1) / middle_weights.sum(axis=-1))


def mean(values: FloatArray, layout: RunLayout) -> FloatArray:
    """Return the mean over tasks of their means."""
    return np.asarray(_task_means(values, layout).mean(axis=-1))


def _median(values: FloatArray, layout: RunLayout) -> FloatArray:
    return np.asarray(np.median(_task_means(values, layout), axis=-1))


def _median_of_runs(values: FloatArray, layout: RunLayout) -> FloatArray:
    return _trimmed_mean(values, layout, (layout.total - 1) // 2)


def _iqm(values: FloatArray, layout: RunLayout) -> FloatArray:
    return _trimmed_mean(values, layout, layout.total // 4)


def _iqm_of_task_means(values: FloatArray, layout: RunLayout) -> FloatArray:
    means = np.sort(_task_means(values, layout), axis=-1)
    cut = means.shape[-1] // 4
    return np.asarray(means[..., cut : means.shape[-1] - cut].mean(axis=-1))


@dataclass(frozen=True)
class Aggregate:
    """One number for all scores of all tasks."""

    name: str
    label: str
    """For the head of a table or an axis."""
    description: str
    """How it is computed, in one line."""
    compute: AggregateFunction


def optimality_gap(gamma: float = 1.0) -> Aggregate:
    """Return the aggregate that measures how far scores fall short of ``gamma`` on average.

    Examples:
        >>> from hadamard.report.statistics.task_scores import score_row
        >>> row, layout = score_row({"easy": [8.0, 10.0], "hard": [0.0, 2.0]})
        >>> float(optimality_gap(6.0).compute(row, layout))
        2.5
    """
    if not math.isfinite(gamma):
        raise ValueError(f"the optimality gap's threshold gamma is a finite score, got {gamma}")

    def compute(values: FloatArray, layout: RunLayout) -> FloatArray:
        return gamma - mean(np.minimum(values, gamma), layout)

    return Aggregate(
        "optimality_gap",
        f"optimality gap to {gamma:g}",
        f"mean of how far scores fall short of {gamma:g}; scores above it count as {gamma:g}",
        compute,
    )


_AGGREGATES = (
    Aggregate("mean", "mean", "average over seeds, then mean over tasks", mean),
    Aggregate("median", "median of task means", "average over seeds, then median", _median),
    Aggregate(
        "median_of_runs", "median of all runs", "median over all tasks × seeds", _median_of_runs
    ),
    Aggregate(
        "iqm",
        "IQM of all runs",
        "mean of the middle half of all tasks × seeds (25 % cut off at either end)",
        _iqm,
    ),
    Aggregate(
        "iqm_of_task_means",
        "IQM of task means",
        "average over seeds, then mean of the middle half of the tasks",
        _iqm_of_task_means,
    ),
    optimality_gap(),
)
AGGREGATES = {aggregate.name: aggregate for aggregate in _AGGREGATES}
"""The aggregates by name. The paper leaves two of them open:

- PQN on 51 games: the text averages "the score across multiple independent seeds" and then
  sorts "the normalized scores for all 51 games * seeds". ``median`` follows the first sentence,
  as does the paper's experiments section for all aggregates; it is also what rliable and most
  papers call the median. ``median_of_runs`` follows the second.
- IQM: the experiments section averages over seeds first (``iqm_of_task_means``), the appendix
  on HumanoidBench discards "the bottom and top 25% of (task, seed) scores" (``iqm``, as rliable).
"""


def find_aggregate(aggregate: str | Aggregate) -> Aggregate:
    """Return the aggregate of a name; an unknown name is an error that lists the known ones."""
    if isinstance(aggregate, Aggregate):
        return aggregate
    if aggregate not in AGGREGATES:
        raise ValueError(unknown("aggregate", aggregate, AGGREGATES))
    return AGGREGATES[aggregate]
