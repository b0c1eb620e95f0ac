"""Verdicts on the paper's claims and numbers from our runs, by the rule in `judgement`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.data.series import FloatArray
from hadamard.report.statistics.difference import difference, level
from hadamard.report.statistics.estimates import Estimate, report_generator
from hadamard.report.statistics.judgement import (
    Judgement,
    Verdict,
    judge_direction,
    judge_equality,
    judge_size,
)
from hadamard.report.statistics.panel import PanelRuns, ValuesByTask
from hadamard.report.statistics.run_values import SCORE
from hadamard.report.statistics.widened_bootstrap import Unit

if TYPE_CHECKING:
    from hadamard.experiments.paper import Arm, Claim, Experiment, Stated


@dataclass(frozen=True)
class JudgedClaim:
    """One claim of the paper, our number for it, and the verdict."""

    algorithm: str
    text: str
    where: str
    kind: str
    """direction, size or equality."""
    paper: float | None
    """The number that the paper states; None if the claim is no size."""
    unit: str
    """The unit of both numbers."""
    ours: Estimate
    verdict: Verdict
    reason: str


_NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


def judge_claims(experiment: Experiment, panels: Mapping[str, PanelRuns]) -> list[JudgedClaim]:
    """Judge every claim of an experiment: first sentences, then stated numbers."""
    judged = [_judge_sentence(claim, panels[claim.algorithm]) for claim in experiment.claims]
    return judged + [
        _judge_number(stated, panels[stated.algorithm]) for stated in experiment.stated
    ]


def _judge_sentence(claim: Claim, data: PanelRuns) -> JudgedClaim:
    kind = "equality" if claim.kind == "equal" else "direction"
    in_percent = claim.against is not None and (claim.by > 0 or claim.measure == SCORE)
    unit: Unit = "percent" if in_percent else "points"

    def judged(ours: Estimate, judgement: Judgement) -> JudgedClaim:
        return JudgedClaim(
            claim.algorithm, claim.text, claim.where, kind, None, unit, ours,
            judgement.verdict, judgement.reason,
        )  # fmt: skip

    names = [arm for arm in (claim.arm, claim.against) if arm is not None]
    if missing := _missing(names, claim.measure, data):
        return judged(_NO_ESTIMATE, Judgement("undecided", missing))
    ours = data.finals(claim.measure)[claim.arm.label]
    aggregation = data.aggregations(claim.measure)[0]
    if claim.since is not None:
        before = data.at(claim.measure, claim.since * data.end)[claim.arm.label]
        shared = [task for task in ours if task in before]
        if not shared:
            no_value = Judgement("undecided", "no value was measured that early")
            return judged(_NO_ESTIMATE, no_value)
        result = difference(
            _select(ours, shared), _select(before, shared), aggregation, rng=report_generator()
        )
    elif claim.against is None:
        result = level(ours, aggregation, rng=report_generator())
    else:
        theirs = data.finals(claim.measure)[claim.against.label]
        result = difference(ours, theirs, aggregation, unit=unit, rng=report_generator())
    if claim.kind == "equal":
        margin = claim.by if in_percent else claim.by / 100
        # A level equals 0 if its difference from 0 does.
        result = dataclasses.replace(result, kind="difference")
        return judged(result.estimate, judge_equality(result, margin))
    return judged(result.estimate, judge_direction(result, claim.kind, margin=claim.by))


def _judge_number(stated: Stated, data: PanelRuns) -> JudgedClaim:
    measure = _SOURCE_MEASURES.get(stated.measure, stated.measure)

    def judged(ours: Estimate, judgement: Judgement) -> JudgedClaim:
        against = f" against {stated.against.label}" if stated.against is not None else ""
        text = f"{stated.arm.label}{against}: {_MEASURE_NAMES.get(stated.measure, stated.measure)}"
        return JudgedClaim(
            stated.algorithm, text, stated.where, "size", stated.value, stated.unit, ours,
            judgement.verdict, judgement.reason,
        )  # fmt: skip

    names = [arm for arm in (stated.arm, stated.against) if arm is not None]
    if missing := _missing(names, measure, data):
        return judged(_NO_ESTIMATE, Judgement("undecided", missing))
    ours = data.finals(measure)[stated.arm.label]
    aggregation = data.aggregations(measure)[0]
    if stated.measure == "time":
        assert stated.against is not None
        slowdown = _slowdown(ours, data.finals(measure)[stated.against.label])
        result = level(slowdown, "mean", rng=report_generator())
    elif stated.against is None:
        result = level(ours, aggregation, rng=report_generator())
    else:
        theirs = data.finals(measure)[stated.against.label]
        result = difference(ours, theirs, aggregation, unit="percent", rng=report_generator())
    if stated.measure == "relative":  # 1.17 of the baseline is a change of 17 %
        judgement = judge_size(result, 100 * (stated.value - 1))
        return judged(Estimate(*(1 + bound / 100 for bound in result.estimate)), judgement)
    return judged(result.estimate, judge_size(result, stated.value))


# The measures of the runs from which other measures are computed.
_SOURCE_MEASURES = {
    "change": SCORE,
    "relative": SCORE,
    "time": "steps_per_second",
    "dormancy_change": "dormant_fraction",
}
_MEASURE_NAMES = {
    "score": "score",
    "change": "change of the score",
    "relative": "score",
    "dormant_fraction": "dormant neurons",
    "effective_rank": "effective rank",
    "dormancy_change": "change of the dormant fraction",
    "time": "time of training",
}


def _missing(arms: Sequence[Arm], measure: str, data: PanelRuns) -> str:
    finals = data.finals(measure)
    lacking = [arm.label for arm in arms if not finals.get(arm.label)]
    return f"not measured: {', '.join(lacking)}" if lacking else ""


def _select(values: ValuesByTask, tasks: Sequence[str]) -> ValuesByTask:
    return {task: values[task] for task in tasks}


def _slowdown(ours: Mapping[str, FloatArray], theirs: Mapping[str, FloatArray]) -> ValuesByTask:
    """Return how many times as long each of our runs takes as the mean of theirs, by task."""
    return {task: np.asarray(theirs[task].mean() / ours[task]) for task in ours if task in theirs}
