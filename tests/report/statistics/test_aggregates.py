"""Aggregates by hand."""

from __future__ import annotations

import pytest

from hadamard.report.statistics.aggregates import AGGREGATES, Aggregate, optimality_gap
from hadamard.report.statistics.estimates import estimate, performance_profile
from hadamard.report.statistics.task_scores import RunLayout, ScoresByTask
from tests.support.arrays import rng


def aggregated(scores: ScoresByTask, aggregate: str | Aggregate) -> float:
    return estimate(scores, aggregate, rng=rng(), resamples=1).value


def test_aggregates_by_hand() -> None:
    scores = {"easy": [1.0, 2.0, 3.0], "hard": [4.0, 5.0, 60.0]}
    assert {name: aggregated(scores, name) for name in AGGREGATES} == {
        "mean": 12.5,  # of 2 and 23
        "median": 12.5,
        "median_of_runs": 3.5,
        "iqm": 3.5,  # of 2, 3, 4, 5
        "iqm_of_task_means": 12.5,  # a quarter of two tasks is none
        "optimality_gap": 0.0,
    }
    assert aggregated(scores, optimality_gap(4.0)) == 1.0  # short by 3, 2, 1, 0, 0, 0
    # Five tasks: one is cut off at either end.
    assert aggregated([[100.0], [1.0], [2.0], [3.0], [-50.0]], "iqm_of_task_means") == 2.0


def test_every_task_counts_the_same_whatever_its_number_of_seeds() -> None:
    uneven = [[0.0, 4.0], [10.0, 10.0, 20.0, 20.0]]
    assert aggregated(uneven, "mean") == 8.5
    assert aggregated(uneven, "median") == 8.5
    assert aggregated(uneven, optimality_gap(12.0)) == 5.5  # of 10 and 1
    # Weights are 1/4, 1/4, 1/8 ..., and a sixth is cut off at either end: 1/12 of 0, 1/4 of 4,
    # 1/4 of 10 and 1/12 of 20 remain.
    assert aggregated(uneven, "iqm") == pytest.approx(7.75)
    # A third at either end: 1/6 of 4 and 1/6 of 10.
    assert aggregated(uneven, "median_of_runs") == pytest.approx(7.0)
    profile = performance_profile([[0.0, 1.0], [2.0, 3.0, 4.0, 5.0]], [0.0, 2.5, 9.0], rng=rng())
    assert profile.value.tolist() == [0.75, 0.375, 0.0]
    # Duplicated seeds do not give a task more weight.
    doubled = [[0.0, 4.0, 0.0, 4.0], [10.0, 10.0, 20.0, 20.0]]
    assert aggregated(uneven, "mean") == aggregated(doubled, "mean")


def test_equal_weights_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = rng().normal(size=(7, 5))
    plain = {name: aggregated(values, name) for name in AGGREGATES}
    monkeypatch.setattr(RunLayout, "even", False)
    assert {name: aggregated(values, name) for name in AGGREGATES} == pytest.approx(plain)


def test_the_two_medians_of_pqn_differ() -> None:
    games = [[0.0, 9.0], [1.0, 1.0], [2.0, 2.0]]
    assert AGGREGATES["median"].description == "average over seeds, then median"
    assert aggregated(games, "median") == 2.0
    assert AGGREGATES["median_of_runs"].description == "median over all tasks × seeds"
    assert aggregated(games, "median_of_runs") == 1.5
