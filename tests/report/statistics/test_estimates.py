"""Aggregates with intervals: equal to rliable's, and to numbers by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hadamard.report.statistics.aggregates import AGGREGATES, optimality_gap
from hadamard.report.statistics.difference import difference, level
from hadamard.report.statistics.estimates import (
    Band,
    Estimate,
    aggregate_curve,
    estimate,
    mean_curve,
    mean_estimate,
    performance_profile,
    probability_of_improvement,
    student_t,
)
from tests.support.arrays import rng
from tests.support.paths import ROOT

RLIABLE = json.loads((ROOT / "tests" / "data" / "rliable.json").read_text())
REPS = RLIABLE["reps"]
NAN = float("nan")


def rliable_scores(name: str) -> Any:
    """Return scores as (tasks, runs); rliable has them as (runs, tasks)."""
    return np.transpose(RLIABLE["scores"][name])


def assert_bounds(interval_at: Callable[[float], Any], theirs: dict[str, Any]) -> None:
    """Check that values are theirs, and their interval is between ours of 94.2 % and of 95.8 %.

    Of 50,000 resamples 2.5 % lie beyond a bound with a standard error of 0.07 %, which is 0.1 % for
    the difference of two; four of these are 0.4 % at either end. Unlike a tolerance on the bounds,
    this also suits discrete statistics, which jump from one value to the next.
    """
    value, inner_low, inner_high = interval_at(0.942)
    np.testing.assert_allclose(value, theirs["value"], rtol=0, atol=1e-12)
    _, outer_low, outer_high = interval_at(0.958)
    low, high = np.array(theirs["low"]), np.array(theirs["high"])
    for smaller, larger in ((outer_low, low), (low, inner_low), (inner_high, high)):
        assert (np.asarray(smaller) <= larger + 1e-9).all()
    assert (high <= np.asarray(outer_high) + 1e-9).all()
    # The check is strict: our two intervals are close to each other.
    assert np.all(outer_high - outer_low <= 1.25 * (inner_high - inner_low))


@pytest.mark.parametrize("name", sorted(RLIABLE["aggregates"]))
def test_aggregates_are_rliables(name: str) -> None:
    values = rliable_scores(name)
    for aggregate, theirs in RLIABLE["aggregates"][name].items():
        assert_bounds(
            lambda c, by=aggregate: estimate(values, by, rng=rng(), resamples=REPS, confidence=c),
            theirs,
        )


@pytest.mark.parametrize("theirs", RLIABLE["probability_of_improvement"], ids=lambda t: t["y"])
def test_the_probability_of_improvement_is_rliable_scores(theirs: dict[str, Any]) -> None:
    def interval_at(confidence: float) -> Estimate:
        x, y = rliable_scores(theirs["x"]), rliable_scores(theirs["y"])
        return probability_of_improvement(x, y, rng=rng(), resamples=REPS, confidence=confidence)

    assert_bounds(interval_at, theirs)


def test_the_performance_profile_is_rliables() -> None:
    theirs = RLIABLE["performance_profile"]

    def interval_at(confidence: float) -> Band:
        values, taus = rliable_scores(theirs["scores"]), theirs["taus"]
        return performance_profile(values, taus, rng=rng(), resamples=REPS, confidence=confidence)

    assert_bounds(interval_at, theirs)


def test_intervals_by_hand() -> None:
    # A quarter of the resamples of two seeds draws the same seed twice.
    assert estimate([[0.0, 1.0]], "mean", rng=rng()) == Estimate(0.5, 0.0, 1.0)
    # All three draws are 3 with probability 1/27 > 2.5 %; all are 0 with 8/27.
    assert estimate([[0.0, 0.0, 3.0]], "mean", rng=rng()) == Estimate(1.0, 0.0, 3.0)
    # Tasks are drawn independently: both ends of both tasks at once, 1/16 > 2.5 %.
    assert estimate([[0.0, 1.0], [10.0, 12.0]], "mean", rng=rng()) == Estimate(5.75, 5.0, 6.5)
    # The interval is narrower at a lower confidence: 0.5 has half of the probability.
    assert estimate([[0.0, 1.0]], "mean", rng=rng(), confidence=0.4) == Estimate(0.5, 0.5, 0.5)
    profile = performance_profile([[0.0, 1.0]], [0.5], rng=rng())
    assert [float(part[0]) for part in profile] == [0.5, 0.0, 1.0]


def test_equal_scores_have_an_interval_without_width() -> None:
    for name in AGGREGATES:
        for tasks in ([[0.1] * 5] * 3, [[0.1] * 5, [0.1] * 3]):
            value, low, high = estimate(tasks, name, rng=rng())
            assert low == high == pytest.approx(value)
    ties = probability_of_improvement([[0.1] * 3, [0.7] * 5], [[0.1] * 7, [0.7] * 3], rng=rng())
    assert ties == Estimate(0.5, 0.5, 0.5)


def test_the_generator_decides() -> None:
    values = rng(1).normal(size=(4, 5))
    assert estimate(values, rng=rng(7)) == estimate(values, rng=rng(7))
    assert estimate(values, rng=rng(7)) != estimate(values, rng=rng(8))


def test_one_seed_has_no_interval() -> None:
    for tasks in ([[3.0]], [[1.0, 2.0], [3.0]]):
        mean = estimate(tasks, "mean", rng=rng())
        assert mean.value in (3.0, 2.25)
        assert not mean.has_interval
        assert np.isnan(performance_profile(tasks, [0.0], rng=rng()).high).all()
    improvement = probability_of_improvement([[3.0]], [[1.0, 2.0]], rng=rng())
    assert improvement.value == 1.0
    assert not improvement.has_interval


def test_intervals_hold_about_as_often_as_they_say() -> None:
    draws, seeds, repetitions = rng(3), 10, 400
    means = draws.uniform(0, 5, 8)
    data = means[:, None] + draws.normal(size=(repetitions, 8, seeds))
    for name in ("mean", "median"):
        truth = estimate(means[:, None], name, rng=rng()).value
        intervals = [estimate(values, name, rng=draws, resamples=400) for values in data]
        held = np.mean([low <= truth <= high for _, low, high in intervals])
        # 0.95 in theory for many seeds, 0.93 for ten; the error of 400 repetitions is 0.012.
        assert 0.90 <= held <= 0.98
    even = [
        probability_of_improvement(values[:, :5], values[:, 5:], rng=draws, resamples=400)
        for values in data
    ]
    assert 0.87 <= np.mean([low <= 0.5 <= high for _, low, high in even]) <= 0.98


def test_students_interval_holds_with_few_seeds_where_the_bootstrap_does_not() -> None:
    curves = rng(4).normal(2.0, 3.0, size=(3, 20_000))
    band = mean_curve(curves)
    assert np.mean((band.low <= 2.0) & (band.high >= 2.0)) == pytest.approx(0.95, abs=0.006)
    intervals = [estimate([curve], "mean", rng=rng(), resamples=400) for curve in curves.T[:300]]
    assert np.mean([low <= 2.0 <= high for _, low, high in intervals]) < 0.85


def test_the_interval_of_a_share_ends_at_0_and_1() -> None:
    assert mean_estimate(np.array([0.0, 0.0, 0.1]), share=True).low == 0
    assert mean_estimate(np.array([0.9, 1.0, 1.0]), share=True).high == 1
    assert mean_estimate(np.array([0.0, 0.0, 0.1])).low < 0
    assert np.isnan(mean_estimate(np.array([0.5]), share=True).low)


def test_mean_curves_by_hand() -> None:
    band = mean_curve([[1.0, NAN, 4.0], [2.0, 1.0, 4.0], [3.0, 1.0, 4.0]])
    np.testing.assert_equal(band.value, [2.0, NAN, 4.0])
    half_width = 4.302653 / np.sqrt(3)  # t of 2 degrees of freedom, standard deviation 1
    np.testing.assert_allclose(band.low, [2 - half_width, NAN, 4.0], rtol=1e-6)
    np.testing.assert_allclose(band.high, [2 + half_width, NAN, 4.0], rtol=1e-6)
    single = mean_curve([[1.0, 2.0]])
    assert single.value.tolist() == [1.0, 2.0]
    assert np.isnan(single.low).all()
    assert np.isnan(single.high).all()


def test_means_of_float32_curves_have_double_precision() -> None:
    # Both are float32 numbers, their mean is none: there, numbers are 8 apart.
    band = mean_curve(np.array([[1e8], [1e8 + 8]], np.float32))
    assert band.value.tolist() == [1e8 + 4]
    curves = {"task": np.array([[1e8], [1e8 + 8]], np.float32)}
    assert aggregate_curve(curves, "mean", rng=rng()).value.tolist() == [1e8 + 4]
    # Student's t of one degree of freedom; the standard error is 4.
    assert band.high[0] - band.value[0] == pytest.approx(4 * 12.7062047, rel=1e-7)


def test_students_t() -> None:
    distribution = pytest.importorskip("scipy.stats").t
    for freedom in (*range(1, 12), 50, 999):
        for confidence in (0.5, 0.95, 0.99):
            exact = distribution.ppf((1 + confidence) / 2, freedom)
            assert student_t(freedom, confidence) == pytest.approx(exact, rel=1e-9)


def test_aggregate_curves_are_the_aggregates_of_each_step() -> None:
    curves = rng().normal(size=(3, 4, 5))
    band = aggregate_curve({"a": curves[0], "b": curves[1], "c": curves[2]}, rng=rng(5))
    for step in range(5):
        # The same generator draws the same runs.
        alone = estimate(curves[:, :, step], rng=rng(5))
        assert alone == tuple(float(part[step]) for part in band)
    curves[1, 2, 3] = NAN
    for part, whole in zip(aggregate_curve(curves, rng=rng(5)), band, strict=True):
        assert np.isnan(part[3])
        np.testing.assert_array_equal(np.delete(part, 3), np.delete(whole, 3))
    nowhere = aggregate_curve(np.full((2, 3, 4), NAN), rng=rng())
    assert np.isnan(nowhere).all()


def test_the_probability_of_improvement_by_hand() -> None:
    # A tie, a loss, a win and a loss.
    assert probability_of_improvement([[1.0, 2.0]], [[1.0, 3.0]], rng=rng()).value == 0.375
    # Different numbers of seeds: 4 of 6 pairs on one task, 1 of 1 on the other.
    ours, theirs = {"a": [1.0, 3.0], "b": [1.0]}, {"b": [0.0], "a": [0.0, 2.0, 2.0]}
    assert probability_of_improvement(ours, theirs, rng=rng()).value == pytest.approx(5 / 6)
    forth = probability_of_improvement(ours, theirs, rng=rng()).value
    back = probability_of_improvement(theirs, ours, rng=rng()).value
    assert forth + back == pytest.approx(1)
    best = probability_of_improvement([[2.0, 3.0]] * 3, [[0.0, 1.0]] * 3, rng=rng())
    assert best == Estimate(1.0, 1.0, 1.0)


def test_changes_in_percent_are_those_of_the_papers_tables() -> None:
    def percent(before: float, after: float) -> float:
        return difference([[after]], [[before]], unit="percent", rng=rng()).estimate.value

    assert round(percent(0.39, 0.30)) == -23
    assert round(percent(0.62, 0.73)) == 18
    assert [round(percent(0.91, after)) for after in (1.03, 0.49)] == [13, -46]
    assert percent(-20.0, -15.0) == 25
    assert np.isnan(percent(0.0, 1.0))


@pytest.mark.parametrize(
    ("unusable", "words"),
    [
        ({}, "there are no scores"),
        ([], "there are no scores"),
        (np.zeros((0, 5)), "there are no scores"),
        ({"atari/Pong": []}, "atari/Pong has no runs"),
        ({"atari/Pong": [1.0, NAN]}, "atari/Pong: the score of run 2 of 2 is NaN"),
        ([[1.0], [np.inf, 1.0]], "task 2: the score of run 1 of 2 is infinite"),
        ({"atari/Pong": [None, 1.0]}, "atari/Pong: the score of run 1 of 2 is NaN"),
        ([[[1.0]]], "task 1: scores are one number per seed, got shape \\(1, 1\\)"),
        ([1.0, 2.0], "task 1: scores are one number per seed"),
    ],
)
def test_scores_that_cannot_be_used_are_named(unusable: Any, words: str) -> None:
    sound = {"atari/Pong": [1.0, 2.0]}
    for call in (
        lambda: estimate(unusable, rng=rng()),
        lambda: performance_profile(unusable, [0.0], rng=rng()),
        lambda: probability_of_improvement(sound, unusable, rng=rng()),
        lambda: difference(unusable, sound, rng=rng()),
        lambda: level(unusable, rng=rng()),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_arguments_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ValueError, match="unknown aggregate 'avg'. Known: mean, median"):
        estimate([[1.0]], "avg", rng=rng())
    with pytest.raises(ValueError, match="only one side has scores on atari/Pong, atari/Qbert"):
        difference({"atari/Qbert": [1.0]}, {"atari/Pong": [1.0]}, rng=rng())
    with pytest.raises(ValueError, match="gamma is a finite score"):
        optimality_gap(NAN)
    with pytest.raises(ValueError, match="taus"):
        performance_profile([[1.0]], [NAN], rng=rng())
    with pytest.raises(ValueError, match="confidence.*95"):
        estimate([[1.0, 2.0]], rng=rng(), confidence=95)
    with pytest.raises(ValueError, match="confidence.*95"):  # also where there is no interval
        probability_of_improvement([[1.0]], [[2.0]], rng=rng(), confidence=95)
    with pytest.raises(ValueError, match="resamples must be at least 1, got 0"):
        estimate([[1.0, 2.0]], rng=rng(), resamples=0)
    with pytest.raises(ValueError, match="at least one seed"):
        mean_curve(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="infinite"):
        mean_curve([[np.inf]])
    with pytest.raises(ValueError, match="there are no scores"):
        aggregate_curve({}, rng=rng())
    with pytest.raises(ValueError, match=r"a: curves are \(seeds, steps\)"):
        aggregate_curve({"a": [1.0, 2.0]}, rng=rng())
    with pytest.raises(ValueError, match="a: a value of the curves is infinite"):
        aggregate_curve({"a": [[np.inf, 2.0]]}, rng=rng())
    with pytest.raises(ValueError, match="different numbers of steps"):
        aggregate_curve({"a": [[1.0]], "b": [[1.0, 2.0]]}, rng=rng())
