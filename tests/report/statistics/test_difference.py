"""Differences between variants, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from hadamard.report.statistics.difference import difference, level, short_number
from hadamard.report.statistics.estimates import student_t
from hadamard.report.statistics.judgement import judge_direction
from hadamard.report.statistics.task_scores import RunLayout
from hadamard.report.statistics.widened_bootstrap import Unit, difference_bands
from tests.support.arrays import rng


def test_an_unknown_unit_is_an_error() -> None:
    with pytest.raises(ValueError, match="'points' or 'percent', got 'dB'"):
        difference([[1.0]], [[2.0]], unit="dB", rng=rng())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ours", "theirs", "tasks", "words"),
    [
        (3, 3, 1, "too few seeds (3; a single task needs 4 a side)"),
        (2, 9, 1, "too few seeds (2; a single task needs 4 a side)"),
        (3, 5, 1, ""),
        (4, 4, 1, ""),
        (2, 9, 2, "too few seeds (2; each task needs 3 a side)"),
        (3, 3, 2, ""),
        (2, 2, 5, "too few seeds (2; each task needs 3 a side)"),
        (1, 1, 6, ""),
    ],
)
def test_how_many_seeds_can_decide(ours: int, theirs: int, tasks: int, words: str) -> None:
    high, low = ([[base + 0.1 * n for n in range(count)]] * tasks
                 for base, count in ((9, ours), (0, theirs)))  # fmt: skip
    result = difference(high, low, rng=rng())
    assert result.too_few == words
    assert result.estimate.has_interval == (not words)
    assert result.outcome == ("no difference shown" if words else "higher")
    assert result.seeds == (min(ours, theirs), max(ours, theirs))
    assert result.resampled == ("seeds" if tasks < 6 else "tasks")


def test_one_task_with_too_few_seeds_decides_nothing() -> None:
    uneven = {"many": [9.0, 9.1, 9.2, 9.3], "few": [9.0, 9.1]}
    few = difference(uneven, {"many": [0.0] * 4, "few": [0.0] * 4}, rng=rng())
    assert few.too_few == "too few seeds (2; each task needs 3 a side)"
    assert level([[1.0, 2.0]], rng=rng()).too_few == (
        "too few seeds (2; a level needs 3 on each task)"
    )


def test_means_get_students_intervals() -> None:
    # For normal scores the widened bootstrap is close to Student's interval.
    scores = rng(4).normal(size=(2, 1, 12))
    ours, theirs = scores
    _, low, high = difference(ours, theirs, rng=rng(), resamples=20_000).estimate
    variances = scores.var(axis=-1, ddof=1).ravel() / 12
    freedom = variances.sum() ** 2 / (variances**2 / 11).sum()
    half_width = student_t(int(freedom)) * np.sqrt(variances.sum())
    assert (high - low) / 2 == pytest.approx(half_width, rel=0.05)
    # Over tasks, it is the interval of the paired differences.
    ours, theirs = rng(5).normal(size=(2, 14, 1)) + 5 * rng(6).normal(size=(14, 1))
    _, low, high = difference(ours, theirs, rng=rng(), resamples=20_000).estimate
    half_width = student_t(13) * (ours - theirs).std(ddof=1) / np.sqrt(14)
    assert (high - low) / 2 == pytest.approx(half_width, rel=0.05)
    # The same holds for a level.
    _, low, high = level(scores[0], rng=rng(), resamples=20_000).estimate
    half_width = student_t(11) * np.sqrt(variances[0])
    assert (high - low) / 2 == pytest.approx(half_width, rel=0.08)


def test_a_drawn_task_contributes_both_sides() -> None:
    # Tasks are far apart, with the same gain on each: unpaired draws would hide it.
    theirs = 1000.0 * np.arange(7)[:, None]
    value, low, high = difference(theirs + 3, theirs, rng=rng()).estimate
    assert value == low == high == pytest.approx(3)
    # Unequal gains are uncertain, with one seed as with several equal ones.
    gains = np.arange(7.0)[:, None]
    single = difference(theirs + gains, theirs, rng=rng()).estimate
    many = difference([[x] * 3 for x in (theirs + gains).ravel()], theirs, rng=rng()).estimate
    assert single.low < 1.5 < 4.5 < single.high
    assert many == pytest.approx(single, rel=0.1)


def test_where_tasks_are_drawn_the_noise_of_seeds_counts_once() -> None:
    """The interval is that of the tasks' means, of which each already has its seeds' noise."""
    ours, theirs = rng(7).normal(size=(2, 8, 5)).cumsum(axis=1)
    seeds = difference(ours, theirs, rng=rng()).estimate
    means = difference(ours.mean(-1)[:, None], theirs.mean(-1)[:, None], rng=rng()).estimate
    assert seeds == pytest.approx(means)
    # A task with more seeds than the place it is drawn for contributes as many as the place has.
    uneven = [list(task[: 1 + number % 5]) for number, task in enumerate(ours)]
    result = difference(uneven, theirs, rng=rng()).estimate
    assert result.low < result.value < result.high


def test_percent_and_points_have_the_same_sign() -> None:
    for seed in range(40):
        theirs = 3 + rng(seed).normal(size=(1, 5))
        ours = 4 + rng(seed + 100).normal(size=(1, 5))
        points = difference(ours, theirs, rng=rng())
        percent = difference(ours, theirs, unit="percent", rng=rng())
        assert percent.estimate.value == pytest.approx(
            100 * (ours.mean() - theirs.mean()) / abs(theirs.mean())
        )
        if not percent.too_few:
            assert percent.outcome == points.outcome
    unclear = difference(ours, theirs - theirs.mean() + 0.1, unit="percent", rng=rng())
    assert (
        unclear.too_few == "the baseline's aggregate may be zero, so there is no percentage of it"
    )
    assert judge_direction(unclear, "higher").verdict == "undecided"
    # Percentages are of the baseline's magnitude, so a rise from a negative baseline is positive.
    risen = difference([[-5.0, -5.1, -4.9, -5.0]], [[-10.0, -10.1, -9.9, -10.0]], unit="percent",
                       rng=rng())  # fmt: skip
    assert risen.outcome == "higher"
    assert risen.estimate.value == pytest.approx(50)
    # Also where the two sides have different signs.
    crossed = difference([[5.0, 5.1, 4.9, 5.0]], [[-10.0, -10.1, -9.9, -10.0]], unit="percent",
                         rng=rng())  # fmt: skip
    assert crossed.outcome == "higher"
    assert crossed.estimate.value == pytest.approx(150)


def test_a_percentage_of_a_baseline_that_does_not_vary_is_a_multiple_of_the_points() -> None:
    ours, theirs = 5 + rng(1).normal(size=(2, 6)), [[4.0] * 6, [8.0] * 6]  # 6 on average
    points = difference(ours, theirs, rng=rng()).estimate
    percent = difference(ours, theirs, unit="percent", rng=rng()).estimate
    assert percent == pytest.approx([100 / 6 * number for number in points])
    assert percent.low < percent.value < percent.high


def test_numbers_in_sentences() -> None:
    numbers = {
        0.0: "0", 0.12345: "0.123", -2.5: "-2.5", 999.4: "999", 999.5: "1,000",
        1234.4: "1,234", -12345.6: "-12,346",
    }  # fmt: skip
    assert {number: short_number(number) for number in numbers} == numbers
    assert short_number(-0.0) == "0"


def test_simulated_experiments_get_the_same_intervals() -> None:
    units: tuple[tuple[int, Unit], ...] = ((2, "points"), (8, "percent"))
    for tasks, unit in units:
        ours, theirs = 5 + rng(tasks).normal(size=(2, 3, tasks, 4))
        layouts = [RunLayout(np.full(tasks, 4))] * 2
        sides = [side.reshape(3, -1) for side in (ours, theirs)]
        bands = difference_bands(sides, layouts, "iqm", unit=unit, rng=rng())
        for index in range(3):
            single = difference(ours[index], theirs[index], "iqm", unit=unit, rng=rng())
            assert single.estimate == pytest.approx([part[index] for part in bands])
