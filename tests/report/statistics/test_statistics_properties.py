"""Statistics of any scores are those of plain loops, and do not depend on order or on units."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadamard.report.statistics.aggregates import AGGREGATES, optimality_gap
from hadamard.report.statistics.difference import difference, level
from hadamard.report.statistics.estimates import (
    aggregate_curve,
    estimate,
    mean_curve,
    performance_profile,
    probability_of_improvement,
    student_t,
)
from hadamard.report.statistics.task_scores import RunLayout
from hadamard.report.statistics.widened_bootstrap import Unit, difference_bands
from tests.support.arrays import rng

Tasks = list[list[int]]
SCORES = st.integers(-20, 20)
TASKS = st.lists(st.lists(SCORES, min_size=1, max_size=5), min_size=1, max_size=6)
SEVERAL_SEEDS = st.lists(st.lists(SCORES, min_size=2, max_size=4), min_size=1, max_size=4)
SMOOTH = ("mean", "median", "median_of_runs", "iqm", "iqm_of_task_means")
"""The aggregates that are in the unit of the scores."""


def average(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def trimmed(tasks: Tasks, cut: int) -> Fraction:
    """The mean without the weight of ``cut`` average runs at either end, run by run."""
    runs = sorted(
        (Fraction(score), Fraction(1, len(tasks) * len(task))) for task in tasks for score in task
    )
    low = Fraction(cut, len(runs))
    high, passed, total = 1 - low, Fraction(0), Fraction(0)
    for score, weight in runs:
        total += score * max(Fraction(0), min(passed + weight, high) - max(passed, low))
        passed += weight
    return total / (high - low)


def by_hand(tasks: Tasks) -> dict[str, Fraction]:
    """The aggregates in fractions, without rounding."""
    means = sorted(average([Fraction(score) for score in task]) for task in tasks)
    runs, quarter, middle = sum(map(len, tasks)), len(means) // 4, len(means) // 2
    short = [average([Fraction(max(0, 1 - score)) for score in task]) for task in tasks]
    return {
        "mean": average(means),
        "median": average([means[middle], means[-1 - middle]]),
        "median_of_runs": trimmed(tasks, (runs - 1) // 2),
        "iqm": trimmed(tasks, runs // 4),
        "iqm_of_task_means": average(means[quarter : len(means) - quarter]),
        "optimality_gap": average(short),
    }


def value(tasks: Tasks, name: str) -> float:
    return estimate(tasks, name, rng=rng(), resamples=1).value


@given(TASKS)
def test_aggregates_are_those_of_fractions(tasks: Tasks) -> None:
    for name, expected in by_hand(tasks).items():
        assert value(tasks, name) == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


@given(TASKS, st.data(), st.integers(1, 9), SCORES)
def test_order_and_units_do_not_matter(
    tasks: Tasks, data: st.DataObject, scale: int, shift: int
) -> None:
    shuffled = [data.draw(st.permutations(task)) for task in data.draw(st.permutations(tasks))]
    rescaled = [[scale * score + shift for score in task] for task in tasks]
    mirrored = [[-score for score in task] for task in tasks]
    for name in AGGREGATES:
        assert value(shuffled, name) == pytest.approx(value(tasks, name), abs=1e-12)
    for name in SMOOTH:
        expected = scale * value(tasks, name) + shift
        assert value(rescaled, name) == pytest.approx(expected, abs=1e-10)
        assert value(mirrored, name) == pytest.approx(-value(tasks, name), abs=1e-12)
    gap = estimate(rescaled, optimality_gap(scale + shift), rng=rng(), resamples=1).value
    assert gap == pytest.approx(scale * value(tasks, "optimality_gap"), abs=1e-10)


@settings(max_examples=25)
@given(SEVERAL_SEEDS, st.sampled_from(sorted(AGGREGATES)), st.sampled_from([0.5, 0.9, 0.95]))
def test_intervals_are_those_of_resampled_lists(tasks: Tasks, name: str, confidence: float) -> None:
    counts = [len(task) for task in tasks]
    row = [score for task in tasks for score in task]
    draws = []
    for positions in RunLayout(np.array(counts)).resampled(rng(3), 40).tolist():
        resampled, start = [], 0
        for task in tasks:
            chosen = positions[start : start + len(task)]
            # Seeds are drawn within their task.
            assert all(start <= position < start + len(task) for position in chosen)
            resampled.append([row[position] for position in chosen])
            start += len(task)
        draws.append(float(by_hand(resampled)[name]))
    bounds = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    result = estimate(tasks, name, rng=rng(3), resamples=40, confidence=confidence)
    assert result[1:] == pytest.approx(tuple(bounds), abs=1e-10)


@given(st.lists(st.tuples(*[st.lists(SCORES, min_size=1, max_size=5)] * 2), min_size=1, max_size=4))
def test_the_probability_of_improvement_is_a_count_of_pairs(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    shares = []
    for ours, theirs in pairs:
        wins = sum((x > y) + 0.5 * (x == y) for x in ours for y in theirs)
        shares.append(wins / len(ours) / len(theirs))
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    result = probability_of_improvement(first, second, rng=rng(), resamples=20)
    assert result.value == pytest.approx(np.mean(shares))
    back = probability_of_improvement(second, first, rng=rng(), resamples=20)
    assert result.value + back.value == pytest.approx(1)
    several = all(len(side) > 1 for pair in pairs for side in pair)
    assert result.has_interval == several
    assert not several or 0 <= result.low <= result.high <= 1


@given(SEVERAL_SEEDS, st.lists(SCORES, min_size=2, max_size=5).map(sorted))
def test_a_performance_profile_is_a_share_of_runs_that_falls(tasks: Tasks, taus: list[int]) -> None:
    band = performance_profile(tasks, taus, rng=rng(), resamples=20)
    for tau, share, low, high in zip(taus, *band, strict=True):
        above = [np.mean([score > tau for score in task]) for task in tasks]
        assert share == pytest.approx(np.mean(above))
        assert 0 <= low <= high <= 1
    for part in band:
        assert all(after <= before for before, after in pairwise(part))


@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_mean_curves_are_students_intervals_of_each_step(
    seeds: int, steps: int, data: st.DataObject
) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    numbers = st.one_of(SCORES, st.just(math.nan))
    row = st.lists(numbers, min_size=steps, max_size=steps)
    curves = np.array(data.draw(st.lists(row, min_size=seeds, max_size=seeds)), dtype=float)
    confidence = data.draw(st.sampled_from([0.5, 0.9, 0.95]))
    band = mean_curve(curves, confidence=confidence)
    for step, column in enumerate(curves.T):
        expected = [math.nan] * 3
        if not np.isnan(column).any():
            mean = column.mean()
            expected = [mean, math.nan, math.nan]
            if seeds > 1:
                error = scipy_stats.sem(column)
                half = scipy_stats.t.ppf((1 + confidence) / 2, seeds - 1) * error
                expected = [mean, mean - half, mean + half]
        assert [part[step] for part in band] == pytest.approx(expected, abs=1e-8, nan_ok=True)


@settings(max_examples=25)
@given(SEVERAL_SEEDS, st.integers(1, 3), st.sampled_from(sorted(AGGREGATES)), st.data())
def test_curves_of_aggregates_have_a_value_where_all_runs_do(
    tasks: Tasks, steps: int, name: str, data: st.DataObject
) -> None:
    curves = [np.array([[s + i for i in range(steps)] for s in task], float) for task in tasks]
    task, missing = data.draw(st.integers(0, len(tasks) - 1)), data.draw(st.integers(0, steps - 1))
    curves[task][0, missing] = math.nan
    band = aggregate_curve(curves, name, rng=rng(2), resamples=20)
    for step in range(steps):
        if step == missing:
            assert all(np.isnan(part[step]) for part in band)
        else:
            shifted = [[score + step for score in task] for task in tasks]
            expected = estimate(shifted, name, rng=rng(2), resamples=20)
            assert [part[step] for part in band] == pytest.approx(list(expected), nan_ok=True)


@settings(max_examples=40)
@given(SEVERAL_SEEDS, st.sampled_from(SMOOTH), st.integers(1, 9), SCORES, st.data())
def test_differences_and_levels_follow_the_scores(
    ours: Tasks, name: str, scale: int, shift: int, data: st.DataObject
) -> None:
    theirs = [data.draw(st.lists(SCORES, min_size=2, max_size=4)) for _ in ours]

    def compared(first: Tasks, second: Tasks) -> tuple[float, float, float]:
        return difference(first, second, name, rng=rng(), resamples=50).estimate

    result = compared(ours, theirs)
    assert result[0] == pytest.approx(value(ours, name) - value(theirs, name), abs=1e-10)
    # Another zero and another unit of the scores change nothing but the unit of the difference.
    first, second = (
        [[scale * s + shift for s in task] for task in side] for side in (ours, theirs)
    )
    assert compared(first, second) == pytest.approx(
        [scale * number for number in result], abs=1e-8, nan_ok=True
    )
    assert math.isnan(result[1]) == math.isnan(result[2])
    assert math.isnan(result[1]) or result[1] <= result[0] <= result[2]
    alone = level(ours, name, rng=rng(), resamples=50)
    assert alone.estimate.value == pytest.approx(value(ours, name), abs=1e-12)
    assert alone.seeds == (min(map(len, ours)), max(map(len, ours)))


def widening(sides: list[Tasks]) -> float:
    """The factor of the draws' distances, sample by sample, as its module describes it."""
    parts, freedoms, variances, drawn = [], [], [], []
    for samples in zip(*sides, strict=True):
        squares = [sum((x - np.mean(sample)) ** 2 for x in sample) for sample in samples]
        counts = [len(sample) for sample in samples]
        freedom = [count - 1 for count in counts]
        of_task = [s / f / n for s, f, n in zip(squares, freedom, counts, strict=True)]
        pooled = sum(squares) / sum(freedom) * sum(1 / count for count in counts)
        variances.append(max(sum(of_task), pooled))
        drawn.append(sum(p * f / n for p, f, n in zip(of_task, freedom, counts, strict=True)))
        parts += of_task
        freedoms += freedom
    if not any(parts):
        return 1.0  # no draw is away from the estimate
    welch = sum(parts) ** 2 / sum(p**2 / f for p, f in zip(parts, freedoms, strict=True))
    normal = NormalDist().inv_cdf(0.975)
    return student_t(int(welch + 1e-9)) / normal * math.sqrt(sum(variances) / sum(drawn))


def ends(numbers: list[float]) -> tuple[float, float]:
    """The numbers beyond which at most 2.5 % lie at either end."""
    low, high = 0.025 * (len(numbers) - 1), 0.975 * (len(numbers) - 1)
    return sorted(numbers)[math.floor(low + 1e-9)], sorted(numbers)[math.ceil(high - 1e-9)]


@given(SEVERAL_SEEDS, st.data())
def test_intervals_of_differences_are_those_of_widened_draws(
    ours: Tasks, data: st.DataObject
) -> None:
    theirs = [data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=4)) for _ in ours]
    generator, factor = rng(4), widening([ours, theirs])
    means, draws = [], []
    for side in (ours, theirs):
        row = np.concatenate(side)
        starts = np.cumsum([0, *map(len, side)])
        means.append(float(np.mean([np.mean(task) for task in side])))
        positions = RunLayout(np.array([len(task) for task in side])).resampled(generator, 41)
        draws.append([
            means[-1] + factor * (np.mean([np.mean(row[drawn[a:b]]) for a, b in pairwise(starts)])
                                  - means[-1])
            for drawn in positions
        ])  # fmt: skip
    pairs = list(zip(*draws, strict=True))
    layouts = [RunLayout(np.array([len(task) for task in side])) for side in (ours, theirs)]
    units: tuple[Unit, ...] = ("points", "percent")
    for unit in units:
        sides = [np.concatenate(side).astype(float) for side in (ours, theirs)]
        band = difference_bands(sides, layouts, "mean", unit=unit, rng=rng(4), resamples=41)
        value, lows = means[0] - means[1], [x - y for x, y in pairs]
        highs = lows
        if unit == "percent":
            value *= 100 / means[1]
            # The baseline is above zero; where a draw is not, there is no percentage.
            lows = [100 * (x - y) / y if y > 0 else -math.inf for x, y in pairs]
            highs = [100 * (x - y) / y if y > 0 else math.inf for x, y in pairs]
        low, high = ends(lows)[0], ends(highs)[1]
        expected = [value, min(low, value), max(high, value)]
        if math.isinf(low) or math.isinf(high):
            expected = [value, math.nan, math.nan]
        assert [float(part) for part in band] == pytest.approx(expected, abs=1e-8, nan_ok=True)
