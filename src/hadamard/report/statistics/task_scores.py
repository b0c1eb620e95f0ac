"""Scores of several tasks: checked, and laid out in one row for the statistics.

Scores are given task by task, as ``{"atari/Breakout": [one number per seed], ...}`` or as a list
of such arrays. Tasks may have different numbers of seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hadamard.report.data.series import FloatArray, IntArray

ScoresByTask = Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike] | FloatArray
"""Scores task by task. An array is (tasks, seeds), the transpose of rliable's."""
CurvesByTask = Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike]
"""Learning curves task by task, each (seeds, steps)."""


@dataclass(frozen=True)
class RunLayout:
    """How the runs of all tasks lie in one row: task after task."""

    counts: IntArray
    """The number of seeds of each task."""

    @functools.cached_property
    def starts(self) -> IntArray:
        """The position at which each task begins."""
        return np.asarray(np.cumsum(self.counts) - self.counts)

    @functools.cached_property
    def total(self) -> int:
        """The number of runs."""
        return int(self.counts.sum())

    @functools.cached_property
    def even(self) -> bool:
        """Whether all tasks have the same number of seeds."""
        return bool((self.counts == self.counts[0]).all())

    @functools.cached_property
    def weights(self) -> FloatArray:
        """The weight of each run, so that every task counts the same; the sum is 1."""
        return np.repeat(1 / (len(self.counts) * self.counts), self.counts)

    def resampled(self, rng: np.random.Generator, resamples: int) -> IntArray:
        """Draw the seeds of every task with replacement.

        Returns positions in the row, (resamples, runs).
        """
        within = np.repeat(self.counts, self.counts)
        first = np.repeat(self.starts, self.counts)
        return rng.integers(within, size=(resamples, self.total)) + first


def finite(values: FloatArray) -> FloatArray:
    """Return the values that are finite numbers."""
    return values[np.isfinite(values)]


def checked_scores(scores: ScoresByTask) -> dict[str, FloatArray]:
    """Return the scores as arrays by task; an error names scores that cannot be used.

    Examples:
        >>> checked_scores({"atari/Pong": [1.0, float("nan")]})
        Traceback (most recent call last):
        ...
        ValueError: atari/Pong: the score of run 2 of 2 is NaN; leave the run out, and say so
    """
    checked = {}
    for name, values in _named(scores).items():
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 1:
            raise ValueError(f"{name}: scores are one number per seed, got shape {array.shape}")
        if not array.size:
            raise ValueError(f"{name} has no runs; leave the task out, and say so")
        for is_unusable, word in ((np.isnan, "NaN"), (np.isinf, "infinite")):
            if is_unusable(array).any():
                run = int(np.argmax(is_unusable(array))) + 1
                raise ValueError(
                    f"{name}: the score of run {run} of {array.size} is {word}; leave the run "
                    "out, and say so"
                )
        checked[name] = array
    return checked


def paired_scores(ours: ScoresByTask, theirs: ScoresByTask) -> list[tuple[FloatArray, FloatArray]]:
    """Return the scores of two variants task by task; both must have the same tasks."""
    first, second = checked_scores(ours), checked_scores(theirs)
    if unpaired := sorted(first.keys() ^ second.keys()):
        raise ValueError(
            f"only one side has scores on {', '.join(unpaired)}; compare on the tasks that both "
            "sides have"
        )
    return [(first[name], second[name]) for name in first]


def score_row(scores: ScoresByTask) -> tuple[FloatArray, RunLayout]:
    """Return the scores of all tasks in one row, and its layout."""
    tasks = list(checked_scores(scores).values())
    return np.concatenate(tasks), RunLayout(np.array([task.size for task in tasks]))


def curve_table(curves: CurvesByTask) -> tuple[FloatArray, RunLayout]:
    """Return the curves of all tasks as (steps, runs), and the layout of the runs."""
    tasks = {name: np.asarray(c, dtype=np.float64) for name, c in _named(curves).items()}
    step_counts = {task.shape[-1:] for task in tasks.values()}
    for name, task in tasks.items():
        if task.ndim != 2 or not len(task):
            raise ValueError(f"{name}: curves are (seeds, steps), got shape {task.shape}")
        if np.isinf(task).any():
            raise ValueError(f"{name}: a value of the curves is infinite; leave the run out")
    if len(step_counts) > 1:
        raise ValueError("the tasks' curves have different numbers of steps; put them on one grid")
    rows = np.concatenate(list(tasks.values()))
    return np.ascontiguousarray(rows.T), RunLayout(np.array([len(task) for task in tasks.values()]))


def _named(scores: ScoresByTask) -> dict[str, npt.ArrayLike]:
    named = (
        dict(scores)
        if isinstance(scores, Mapping)
        else {f"task {number}": values for number, values in enumerate(scores, start=1)}
    )
    if not named:
        raise ValueError("there are no scores: give at least one task")
    return named
