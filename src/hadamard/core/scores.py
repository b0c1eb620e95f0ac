"""Scores of games that end one by one: what a run's greedy games say at a moment."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

WINDOWS = 20
"""The window is a budget's twentieth, its last 5 %."""
LEAST = 16
"""Games that a score is the mean of at least, if there are as many."""


def greedy_window_mean(
    steps: Sequence[int], scores: Sequence[float], now: float, budget: float
) -> float:
    """Return the mean score of the newest greedy games; NaN if none has ended.

    These are the games that ended in the last 5 % of the budget up to now. If they are fewer than
    16, the window reaches back to the step at which the sixteenth last game ended.

    Args:
        steps: When each game ended, in the order in which they did.
        scores: What each scored.
        now: A moment, in steps; games that ended later do not count.
        budget: The steps that are trained in all.

    Examples:
        One game ended every 10 steps. The last 50 of 1,000 steps have 5 games: 16 are taken.

        >>> steps = list(range(10, 1001, 10))
        >>> scores = [step / 10 for step in steps]  # 1, 2, ..., 100
        >>> greedy_window_mean(steps, scores, now=1000, budget=1000)  # games 85 to 100
        92.5

        One game ended every step: those of the last 50 steps are taken, 951 to 1000.

        >>> steps = list(range(1, 1001))
        >>> greedy_window_mean(steps, steps, now=1000, budget=1000)
        975.5

        Earlier in training the window is as long, and later games do not count.

        >>> greedy_window_mean(steps, steps, now=100, budget=1000)
        75.5

        Three games are all there is; before the first there is nothing.

        >>> greedy_window_mean([5, 5, 9], [1.0, 2.0, 6.0], now=9, budget=1000)
        3.0
        >>> greedy_window_mean([5, 5, 9], [1.0, 2.0, 6.0], now=4, budget=1000)
        nan
    """
    if len(steps) != len(scores):
        raise ValueError(f"{len(steps)} games ended and {len(scores)} have a score: give both")
    if not budget > 0:
        raise ValueError(f"budget must be above 0, got {budget}")
    end = bisect_right(steps, now)
    if end == 0:
        return math.nan
    first = bisect_right(steps, now - budget / WINDOWS, hi=end)
    if end - first < LEAST:
        # All games that ended at that step: which of them came first says nothing.
        first = bisect_left(steps, steps[max(0, end - LEAST)], hi=end)
    return math.fsum(scores[first:end]) / (end - first)


def greedy_window_means(
    steps: Sequence[int], scores: Sequence[float], at: Iterable[float], budget: float
) -> NDArray[np.float64]:
    """Return `greedy_window_mean` at several moments, for a curve.

    Examples:
        >>> steps = list(range(1, 1001))
        >>> greedy_window_means(steps, steps, at=[0, 100, 1000], budget=1000)
        array([  nan,  75.5, 975.5])
    """
    return np.array([greedy_window_mean(steps, scores, now, budget) for now in at])
