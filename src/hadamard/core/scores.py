"""How a run's score at a moment is computed from its games."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SCORE_EPISODES = 100
"""A run's training score is the mean of this many of its last episodes."""
GREEDY_SHARE = 0.05
"""The greedy score is the mean of the games in this last part of the budget, ..."""
GREEDY_GAMES = 16
"""... and of at least this many games, if there were as many."""


def greedy_window_mean(
    steps: npt.ArrayLike, scores: npt.ArrayLike, now: float, budget: float
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
    return float(greedy_window_means(steps, scores, [now], budget)[0])


def greedy_window_means(
    steps: npt.ArrayLike, scores: npt.ArrayLike, at: npt.ArrayLike, budget: float
) -> npt.NDArray[np.float64]:
    """Return `greedy_window_mean` at several moments, for a curve.

    Examples:
        >>> steps = list(range(1, 1001))
        >>> greedy_window_means(steps, steps, at=[0, 100, 1000], budget=1000)
        array([  nan,  75.5, 975.5])
    """
    ended, values = np.asarray(steps), np.asarray(scores, dtype=np.float64)
    if len(ended) != len(values):
        raise ValueError(f"{len(ended)} games ended and {len(values)} have a score: give both")
    if not budget > 0:
        raise ValueError(f"budget must be above 0, got {budget}")
    moments = np.asarray(at, dtype=np.float64)
    means = np.full(moments.shape, np.nan)
    if not len(ended):
        return means
    last = np.searchsorted(ended, moments, side="right")
    first = np.searchsorted(ended, moments - GREEDY_SHARE * budget, side="right")
    # All games that ended at the sixteenth last's step: which of them came first says nothing.
    least = np.searchsorted(ended, ended[np.maximum(last - GREEDY_GAMES, 0)], side="left")
    first = np.minimum(first, least)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    np.divide(sums[last] - sums[first], last - first, out=means, where=last > first)
    return means
