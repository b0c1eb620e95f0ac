"""Verdicts on claims: what an interval must contain or exclude."""

from __future__ import annotations

from typing import Any

import pytest

from hadamard.report.statistics.difference import Difference, Outcome
from hadamard.report.statistics.estimates import Estimate
from hadamard.report.statistics.judgement import (
    Verdict,
    judge_direction,
    judge_equality,
    judge_size,
)

NAN = float("nan")


def interval(
    low: float, high: float, *, unit: Any = "points", kind: Any = "difference", too_few: str = ""
) -> Difference:
    estimate = Estimate((low + high) / 2, low, high)
    return Difference(estimate, unit, 7, (1, 1), "tasks", too_few, kind)


@pytest.mark.parametrize(
    ("low", "high", "outcome", "higher", "lower"),
    [
        (0.5, 2.0, "higher", "supported", "not supported"),
        (-2.0, -0.5, "lower", "not supported", "supported"),
        (-1.0, 2.0, "no difference shown", "undecided", "undecided"),
        (0.0, 2.0, "no difference shown", "undecided", "undecided"),
        (0.0, 0.0, "no difference shown", "undecided", "undecided"),
    ],
)
def test_a_direction_needs_an_interval_without_zero(
    low: float, high: float, outcome: Outcome, higher: Verdict, lower: Verdict
) -> None:
    difference = interval(low, high)
    assert difference.outcome == outcome
    assert judge_direction(difference, "higher").verdict == higher
    assert judge_direction(difference, "lower").verdict == lower


@pytest.mark.parametrize(
    ("low", "high", "kind", "stated", "verdict"),
    [
        (5.0, 30.0, "difference", 18.0, "supported"),
        (5.0, 30.0, "difference", 31.0, "not supported"),
        (5.0, 30.0, "difference", -18.0, "not supported"),
        (-2.0, 30.0, "difference", 18.0, "undecided"),
        (-2.0, 30.0, "difference", 31.0, "not supported"),
        (-2.0, 30.0, "level", 18.0, "supported"),
        (0.0, 0.2, "level", 0.0, "supported"),
    ],
)
def test_a_size_needs_an_interval_that_contains_it(
    low: float, high: float, kind: str, stated: float, verdict: Verdict
) -> None:
    assert judge_size(interval(low, high, kind=kind), stated).verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-4.0, 3.0, "supported"),
        (1.0, 3.0, "supported"),  # a difference, and within the margin
        (-5.0, 5.0, "supported"),
        (5.0, 9.0, "undecided"),  # the margin itself is within
        (-9.0, -5.0, "undecided"),
        (-6.0, 3.0, "undecided"),
        (4.0, 6.0, "undecided"),
        (6.0, 9.0, "not supported"),
        (-9.0, -6.0, "not supported"),
    ],
)
def test_equality_needs_an_interval_inside_the_margin(
    low: float, high: float, verdict: Verdict
) -> None:
    assert judge_equality(interval(low, high), 5.0).verdict == verdict


def test_judgements_give_their_numbers() -> None:
    difference = interval(-2.0, 30.0, unit="percent")
    assert judge_size(difference, 18.0).reason == (
        "The interval of the difference, 14 % (-2 to 30), contains the stated 18 and 0: too wide "
        "to tell it from no change (1 seed on 7 tasks)."
    )
    assert judge_direction(difference, "higher").reason.endswith("contains 0 (1 seed on 7 tasks).")
    few = interval(NAN, NAN, too_few="too few seeds (2; a single task needs 4 a side)")
    for judgement in (
        judge_direction(few, "higher"),
        judge_size(few, 1.0),
        judge_equality(few, 1.0),
    ):
        assert judgement.verdict == "undecided"
        assert judgement.reason == f"Nothing can be decided: {few.too_few}."


def test_claims_that_make_no_sense_are_refused() -> None:
    difference, level = interval(1.0, 2.0), interval(1.0, 2.0, kind="level")
    with pytest.raises(ValueError, match="'higher' or 'lower', got 'better'"):
        judge_direction(difference, "better")  # type: ignore[arg-type]
    for margin in (-0.5, NAN, float("inf")):
        with pytest.raises(ValueError, match=f"margin must be a number from 0, got {margin}"):
            judge_direction(difference, "higher", margin)
    for margin in (-1, 0, NAN, float("inf")):
        match = f"a margin of equality is a number above 0, got {margin}"
        with pytest.raises(ValueError, match=match):
            judge_equality(difference, margin)
    with pytest.raises(ValueError, match="a stated size is a finite number, got nan"):
        judge_size(difference, NAN)
    with pytest.raises(ValueError, match="use judge_equality with a margin"):
        judge_size(difference, 0)
    with pytest.raises(ValueError, match="claim of direction needs a difference"):
        judge_direction(level, "higher")
    with pytest.raises(ValueError, match="claim of equality needs a difference"):
        judge_equality(level, 1)
