"""The score of greedy games played alongside training, as it stands at a step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GREEDY_SHARE = 0.05
"""The last part of the budget whose greedy games make the score."""
GREEDY_GAMES = 16
"""How many games it is the mean of at least, further back where so few ended in that part."""


def greedy_window_mean(
    steps: npt.ArrayLike, scores: npt.ArrayLike, now: float, budget: float
) -> float:
    """Return the mean score of the games that ended in the last 5 % of the budget up to ``now``.

    It reaches further back until there are 16 games; of all so far while there are fewer; NaN
    before the first. ``steps`` are those at which the games ended, in order.

    Examples:
        >>> greedy_window_mean([10, 20, 30, 999], [1.0, 2.0, 3.0, 9.0], now=30, budget=1000)
        2.0
    """
    return float(greedy_window_means(steps, scores, [now], budget)[0])


def greedy_window_means(
    steps: npt.ArrayLike, scores: npt.ArrayLike, places: npt.ArrayLike, budget: float
) -> npt.NDArray[np.float64]:
    """Return `greedy_window_mean` at each of some places."""
    ended = np.asarray(steps)
    at = np.asarray(places, dtype=np.float64)
    last = np.searchsorted(ended, at, side="right")
    first = np.searchsorted(ended, at - GREEDY_SHARE * budget, side="left")
    first = np.minimum(first, np.maximum(last - GREEDY_GAMES, 0))
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(scores, dtype=np.float64))])
    means = np.full(at.shape, np.nan)
    np.divide(sums[last] - sums[first], last - first, out=means, where=last > first)
    return means
