"""How often the rule of comparisons is wrong, and how often it finds an effect."""

from __future__ import annotations

import sys

import pytest

from tests.support.paths import ROOT

# How often the rule is wrong, and how often it finds what is there. All designs, scores and
# aggregates: benchmarks/error_rates.py. Rates of 2,000 experiments are out by 0.5 points at 5 %.
sys.path.insert(0, str(ROOT / "benchmarks"))
import error_rates

DESIGNS = {design.name: design for design in error_rates.DESIGNS}
SKEWED = ("lognormal", "shares, often 0")


@pytest.mark.parametrize(
    ("design", "scores", "aggregates"),
    [
        ("1 × 4", error_rates.SCORES, ("mean",)),
        ("1 × 5", (*SKEWED, "one side three times as noisy"), ("mean", "iqm")),
        ("1 × 10", ("normal", *SKEWED), ("mean",)),
        ("1 × 3 against 5", SKEWED, ("mean",)),
        ("1 × 4 against 10", (*SKEWED, "one side three times as noisy"), ("mean",)),
        ("2 × 3", ("scales from 0.03 to 30", *SKEWED), ("mean", "median_of_runs")),
        ("5 × 5", ("scales from 0.03 to 30", "task-by-variant interaction"), ("mean", "median")),
        ("6 × 1", error_rates.SCORES, ("mean",)),
        ("7 × 1", ("shares",), ("median", "iqm_of_task_means")),
        ("8 × 2", ("task-by-variant interaction",), ("mean", "iqm")),
        ("7 × 5", ("lognormal", "scales from 0.03 to 30"), ("mean", "iqm")),
        ("14 × 1", ("lognormal", "shares, often 0"), ("mean", "iqm")),
        ("51 × 1", ("Student's t, 2 degrees",), ("mean",)),
    ],
)
def test_equal_variants_are_rarely_told_apart(
    design: str, scores: tuple[str, ...], aggregates: tuple[str, ...]
) -> None:
    # A percentage never has another sign, and takes as long again: where designs are small.
    units = error_rates.UNITS if sum(DESIGNS[design].ours) < 14 else ("points",)
    rows = list(error_rates.error_rates(DESIGNS[design], scores, aggregates, units))
    assert rows
    for row in rows:
        assert row.error <= error_rates.LIMIT, row


@pytest.mark.parametrize("design", ["7 × 5", "14 × 1"])
@pytest.mark.parametrize("scores", ["normal", "task-by-variant interaction"])
def test_where_tasks_are_drawn_intervals_of_means_hold_as_often_as_they_say(
    design: str, scores: str
) -> None:
    # With the noise of seeds in it twice, that of 7 × 5 holds 100 % of the time.
    holds, _ = error_rates.coverage(DESIGNS[design], scores)
    assert 0.925 < holds < 0.975


@pytest.mark.parametrize(
    ("design", "effect", "rate"),
    [("1 × 4", 3, 0.85), ("1 × 10", 2, 0.95), ("2 × 3", 3, 0.95), ("5 × 5", 1, 0.9),
     ("7 × 1", 3, 0.95), ("14 × 1", 2, 0.98), ("51 × 1", 1, 0.98)],
)  # fmt: skip
def test_a_clear_effect_is_found(design: str, effect: float, rate: float) -> None:
    assert error_rates.power(DESIGNS[design], effect) >= rate
