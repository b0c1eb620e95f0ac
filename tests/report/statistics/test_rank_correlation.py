"""Rank correlations within strata, and intervals over clusters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from hadamard.report.statistics.estimates import Estimate
from hadamard.report.statistics.rank_correlation import Point, rank_correlation


def points(
    x: np.ndarray, y: np.ndarray, cluster: str = "game", stratum: str = "end"
) -> list[Point]:
    return [
        Point(cluster, stratum, f"run {i}", *pair) for i, pair in enumerate(zip(x, y, strict=True))
    ]


def correlation(chosen: list[Point]) -> Estimate:
    return rank_correlation(chosen, rng=np.random.default_rng(0))


def test_it_is_spearmans_ties_included() -> None:
    rng = np.random.default_rng(1)
    for count in (4, 9, 40):
        x, y = rng.integers(0, 6, count).astype(float), rng.normal(size=count)
        y[: count // 3] = 0.5
        expected = spearmanr(x, y).statistic
        assert correlation(points(x, y)).value == pytest.approx(expected)
        assert correlation(points(x, -3 * y)).value == pytest.approx(-expected)


def test_only_networks_of_one_game_and_place_are_compared() -> None:
    # Within each game the relation falls; between the games it rises.
    x = np.arange(6.0)
    near, far = points(x, -x, "a"), points(x + 100, 100 - x, "b")
    assert spearmanr([p.x for p in near + far], [p.y for p in near + far]).statistic > 0.4
    assert correlation(near + far).value == pytest.approx(-1.0)
    later = [Point(p.cluster, "later", p.unit, p.x + 50, p.y + 50) for p in near]
    assert correlation(near + later).value == pytest.approx(-1.0)
    # The mean of the strata, each weighted by its points: 6 of -1 and 4 of +1.
    rising = points(np.arange(4.0), np.arange(4.0), "c")
    assert correlation(near + rising).value == pytest.approx(-0.2)


def test_checkpoints_of_a_run_are_no_independent_runs() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    once = points(x, y)
    often = [
        Point(p.cluster, f"place {place}", p.unit, p.x, p.y) for place in range(10) for p in once
    ]
    narrow, same = correlation(once), correlation(often)
    assert same.value == pytest.approx(narrow.value)
    assert same.high - same.low == pytest.approx(narrow.high - narrow.low, rel=0.1)


def test_games_that_disagree_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 40))
    agree = [p for g in range(4) for p in points(x[g], x[g] + rng.normal(size=40), f"{g}")]
    slopes = (1, 1, -1, -1)
    differ = [
        p
        for g in range(4)
        for p in points(x[g], slopes[g] * x[g] + 0.2 * rng.normal(size=40), f"{g}")
    ]
    agreeing, differing = correlation(agree), correlation(differ)
    assert agreeing.low > 0.4
    assert differing.low < -0.4 < 0.4 < differing.high


def test_independent_numbers_are_uncorrelated_19_times_in_20() -> None:
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(60):
        own = [p for g in "ab" for p in points(rng.normal(size=25), rng.normal(size=25), g)]
        estimate = rank_correlation(own, rng=rng, resamples=200)
        held += estimate.low <= 0 <= estimate.high
    assert held >= 52


def test_too_few_points_have_no_interval_or_no_value() -> None:
    x = np.arange(4.0)
    four = correlation(points(x, x))
    assert four.value == 1.0
    assert not four.has_interval
    assert np.isnan(correlation(points(x[:3], x[:3])).value)
    assert np.isnan(correlation([]).value)
    same = correlation(points(np.ones(9), np.arange(9.0)))  # a measure that never changes
    assert np.isnan(same.value)


def test_missing_numbers_are_left_out() -> None:
    x = np.array([0.0, 1, 2, 3, np.nan, 5])
    y = np.array([0.0, 1, 2, 3, 9, np.inf])
    assert correlation(points(x, y)).value == 1.0
