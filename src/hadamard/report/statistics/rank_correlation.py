"""Rank correlations of points in strata and clusters, with bootstrap intervals.

Points are compared only within a stratum (one game at one place of training), because levels differ
between games and change with time; the strata's correlations are averaged, each weighted by its
number of points. For the interval, clusters are drawn first (games), and then units within each
cluster (runs); all points of a run stay together. So neither the checkpoints of a run nor the runs
of a game count as independent. With one cluster only its units are drawn: the interval then says
nothing about other clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hadamard.report.data.series import FloatArray
from hadamard.report.statistics.estimates import CONFIDENCE, Estimate

RESAMPLES = 1000
_LEAST_POINTS = 4
"""Of a stratum: the rank correlation of fewer says little."""
_LEAST_DISTINCT = 3
"""Units of a stratum that a resample must hold, or the stratum does not count in it."""

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """One network: where it stands, and the two numbers that are compared."""

    cluster: str
    """The game."""
    stratum: str
    """Within the cluster: the place of training."""
    unit: str
    """The run."""
    x: float
    y: float


def rank_correlation(
    points: Sequence[Point], *, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Estimate:
    """Return the mean rank correlation within strata, with its interval; NaN if there is none.

    Examples:
        >>> points = [Point("a", "1", f"run {i}", i, i**2) for i in range(5)]
        >>> rank_correlation(points, rng=np.random.default_rng(0)).value
        1.0
    """
    finite = [point for point in points if np.isfinite(point.x) and np.isfinite(point.y)]
    strata: dict[tuple[str, str], list[Point]] = {}
    for point in finite:
        strata.setdefault((point.cluster, point.stratum), []).append(point)
    used = {key: values for key, values in strata.items() if len(values) >= _LEAST_POINTS}
    units: dict[str, list[str]] = {}
    for (cluster, _), values in used.items():
        units[cluster] = list(dict.fromkeys([*units.get(cluster, []), *(p.unit for p in values)]))
    if not used:
        return Estimate(np.nan, np.nan, np.nan)
    ones = {cluster: np.ones((1, len(names))) for cluster, names in units.items()}
    value = float(_mean_correlation(used, units, ones)[0])
    drawn = _mean_correlation(used, units, _draws(units, resamples, rng))
    drawn = drawn[np.isfinite(drawn)]
    if sum(map(len, units.values())) < 2 * _LEAST_DISTINCT or drawn.size < resamples / 2:
        return Estimate(value, np.nan, np.nan)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))


def _draws(
    units: dict[str, list[str]], resamples: int, rng: np.random.Generator
) -> dict[str, Weights]:
    """Return how often each unit is drawn in each resample, (resamples, units) for each cluster."""
    clusters = list(units)
    times = rng.multinomial(len(clusters), [1 / len(clusters)] * len(clusters), resamples)
    draws = {}
    for place, cluster in enumerate(clusters):
        count = len(units[cluster])
        # A cluster that is drawn twice brings its units twice over, drawn anew each time.
        draws[cluster] = rng.multinomial(times[:, place] * count, [1 / count] * count).astype(float)
    return draws


def _mean_correlation(
    strata: dict[tuple[str, str], list[Point]],
    units: dict[str, list[str]],
    draws: dict[str, Weights],
) -> FloatArray:
    """Return the correlation of each resample: the strata's, weighted by their points."""
    count = len(next(iter(draws.values())))
    total, weight = np.zeros(count), np.zeros(count)
    for (cluster, _), points in strata.items():
        places = [units[cluster].index(point.unit) for point in points]
        drawn = draws[cluster][:, places]
        values = _correlations(
            np.array([point.x for point in points]), np.array([point.y for point in points]), drawn
        )
        size = np.where(np.isfinite(values), drawn.sum(1), 0.0)
        total += size * np.nan_to_num(values)
        weight += size
    mean: FloatArray = np.divide(total, weight, out=np.full(count, np.nan), where=weight > 0)
    return mean


def _correlations(x: FloatArray, y: FloatArray, weights: Weights) -> FloatArray:
    """Return Spearman's correlation for each row of weights; NaN where it is not defined."""
    first, second = _ranks(x, weights), _ranks(y, weights)
    size = weights.sum(1, keepdims=True).clip(1)
    first = first - (weights * first).sum(1, keepdims=True) / size
    second = second - (weights * second).sum(1, keepdims=True) / size
    product = (weights * first * second).sum(1)
    spread = np.sqrt((weights * first**2).sum(1) * (weights * second**2).sum(1))
    enough = (weights > 0).sum(1) >= _LEAST_DISTINCT
    defined = enough & (spread > 1e-9)
    undefined = np.full(len(weights), np.nan)
    values: FloatArray = np.divide(product, spread, out=undefined, where=defined)
    return values


def _ranks(values: FloatArray, weights: Weights) -> FloatArray:
    """Return the mean rank of each value in each resample, ties at the middle of their ranks."""
    below = (values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])
    ranks: FloatArray = weights @ below.T
    return ranks
