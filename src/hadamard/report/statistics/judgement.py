"""Verdicts on claims: whether an interval supports a direction, a size or an equality.

A claim is about a difference between two variants, in points or in percent, or about the aggregate
of one variant (a level). Its 95 % interval (`difference`) decides:

- a direction ("higher than the baseline"): supported if the interval lies on the claimed side of
  0, not supported if it lies on the other side;
- a size ("18 % higher"): supported if the interval contains the stated number, not supported if
  it does not. An interval that contains both the stated change and 0 is undecided;
- equality ("as good as"): supported if the interval lies inside a margin chosen beforehand, not
  supported if it lies wholly outside.

Everything else is undecided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hadamard.report.statistics.difference import Difference, short_number

Verdict = Literal["supported", "not supported", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim."""

    verdict: Verdict
    reason: str
    """One sentence with the numbers."""
    why: str
    """The same without the numbers, for a table that shows them."""


def judge_direction(
    difference: Difference, expected: Literal["higher", "lower"], margin: float = 0.0
) -> Judgement:
    """Judge the claim that a difference has one sign, or exceeds a number in that direction.

    Examples:
        >>> from hadamard.report.statistics.estimates import Estimate
        >>> difference = Difference(Estimate(5.0, 3.0, 7.0), "points", 1, (5, 5), "seeds", "")
        >>> judge_direction(difference, "lower").verdict
        'not supported'
        >>> judge_direction(difference, "higher", margin=4.0).verdict
        'undecided'
    """
    if expected not in ("higher", "lower"):
        raise ValueError(f"a claimed direction is 'higher' or 'lower', got {expected!r}")
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be a number from 0, got {margin}")
    _check_change(difference, "direction")
    if difference.too_few:
        return _too_few_seeds(difference)
    limit = margin if expected == "higher" else -margin
    if difference.estimate.low <= limit <= difference.estimate.high:
        return _judgement(difference, "undecided", f"contains {short_number(limit)}")
    side = "above" if difference.estimate.low > limit else "below"
    as_claimed = (side == "above") == (expected == "higher")
    verdict: Verdict = "supported" if as_claimed else "not supported"
    return _judgement(difference, verdict, f"lies {side} {short_number(limit)}")


def judge_size(difference: Difference, stated: float) -> Judgement:
    """Judge the claim that a difference or a level is as large as stated, in the same unit.

    A wide interval contains many numbers: "supported" means that the scores are compatible with
    the stated number, not that they exclude others.

    Examples:
        >>> from hadamard.report.statistics.estimates import Estimate
        >>> difference = Difference(Estimate(5.0, -1.0, 11.0), "percent", 7, (1, 1), "seeds", "")
        >>> judge_size(difference, 8.0).verdict, judge_size(difference, 18.0).verdict
        ('undecided', 'not supported')
    """
    if not math.isfinite(stated):
        raise ValueError(f"a stated size is a finite number, got {stated}")
    if difference.kind == "difference" and stated == 0:
        raise ValueError("a stated change of 0 is equality: use judge_equality with a margin")
    if difference.too_few:
        return _too_few_seeds(difference)
    number = f"the stated {short_number(stated)}"
    if not difference.estimate.low <= stated <= difference.estimate.high:
        return _judgement(difference, "not supported", f"does not contain {number}")
    if difference.kind == "difference" and difference.estimate.low <= 0 <= difference.estimate.high:
        return _judgement(
            difference, "undecided", f"contains {number} and 0: too wide to tell it from no change"
        )
    return _judgement(difference, "supported", f"contains {number}")


def judge_equality(difference: Difference, margin: float) -> Judgement:
    """Judge the claim that a difference is no larger than a margin either way, in the same unit.

    Examples:
        >>> from hadamard.report.statistics.estimates import Estimate
        >>> difference = Difference(Estimate(0.5, -1.0, 2.0), "percent", 7, (1, 1), "seeds", "")
        >>> judge_equality(difference, 5.0).verdict, judge_equality(difference, 1.5).verdict
        ('supported', 'undecided')
    """
    if not 0 < margin < math.inf:
        raise ValueError(f"a margin of equality is a number above 0, got {margin}")
    _check_change(difference, "equality")
    if difference.too_few:
        return _too_few_seeds(difference)
    within = f"the margin of {short_number(margin)} either way"
    if difference.estimate.low >= -margin and difference.estimate.high <= margin:
        return _judgement(difference, "supported", f"lies inside {within}")
    if difference.estimate.low > margin or difference.estimate.high < -margin:
        return _judgement(difference, "not supported", f"lies outside {within}")
    return _judgement(difference, "undecided", f"reaches beyond {within} but is not wholly outside")


def _check_change(difference: Difference, claim: str) -> None:
    if difference.kind != "difference":
        raise ValueError(f"a claim of {claim} needs a difference, got a level")


def _too_few_seeds(difference: Difference) -> Judgement:
    reason = f"Nothing can be decided: {difference.too_few}."
    return Judgement("undecided", reason, reason)


def _judgement(difference: Difference, verdict: Verdict, finding: str) -> Judgement:
    interval = f"The interval of the {difference.kind}, {difference.interval},"
    reason = f"{interval} {finding} ({difference.evidence})."
    return Judgement(verdict, reason, f"The interval {finding}.")
