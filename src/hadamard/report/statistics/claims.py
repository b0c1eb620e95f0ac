"""Verdicts on the paper's claims and numbers from our runs, by the rule in `judgement`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hadamard.experiments.paper.model import Stated
from hadamard.report.data.series import FloatArray
from hadamard.report.statistics.difference import difference, level
from hadamard.report.statistics.dormancy import Activation
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
from hadamard.theory import predicted_dormant

if TYPE_CHECKING:
    from hadamard.experiments.paper import Claim, Experiment


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
    measure: str
    ours: Estimate
    verdict: Verdict
    reason: str
    why: str
    """The reason without the numbers."""
    tasks: Sequence[str]
    """The tasks it was judged on: all those that its arms share."""
    seeds: tuple[int, int]
    """The fewest and the most runs of an arm on a task."""
    budget: str


_NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


def judge_claims(experiment: Experiment, panels: Mapping[str, PanelRuns]) -> list[JudgedClaim]:
    """Judge every claim of an experiment: first sentences, then stated numbers.

    Each is judged on all the tasks that its own arms share.
    """
    return [judge(claim, panels[claim.algorithm]) for claim in experiment.claims] + [
        judge(stated, panels[stated.algorithm]) for stated in experiment.stated
    ]


def judge(claim: Claim | Stated, data: PanelRuns) -> JudgedClaim:
    """Judge one sentence or one stated number by the runs of its panel."""
    arms = [arm.label for arm in (claim.arm, claim.against) if arm is not None]
    lacking = [label for label in arms if label not in data.complete]
    data = data.of_arms(arms)
    lacking = lacking or [label for label in arms if not data.finals(_source(claim)).get(label)]
    if isinstance(claim, Stated):
        kind, paper, unit, text = "size", claim.value, claim.unit, _number_text(claim)
    else:
        kind, paper = "equality" if claim.kind == "equal" else "direction", None
        unit, text = _unit(claim), claim.text
    if lacking:
        reason = f"not measured: {', '.join(lacking)}"
        ours, judgement = _NO_ESTIMATE, Judgement("undecided", reason, reason)
    elif isinstance(claim, Stated):
        ours, judgement = _judge_number(claim, data)
    else:
        ours, judgement = _judge_sentence(claim, data)
    return JudgedClaim(
        claim.algorithm, text, claim.where, kind, paper, unit, claim.measure, ours,
        judgement.verdict, judgement.reason, judgement.why,
        [] if lacking else data.tasks_with(_source(claim)), data.seeds(), data.budget_words,
    )  # fmt: skip


def _judge_sentence(claim: Claim, data: PanelRuns) -> tuple[Estimate, Judgement]:
    unit = _unit(claim)
    ours = data.finals(claim.measure)[claim.arm.label]
    aggregation = data.aggregations(claim.measure)[0]
    if claim.since is not None:
        before = data.at(claim.measure, claim.since * data.end)[claim.arm.label]
        shared = [task for task in ours if task in before]
        if not shared:
            reason = "no value was measured that early"
            return _NO_ESTIMATE, Judgement("undecided", reason, reason)
        result = difference(
            _select(ours, shared), _select(before, shared), aggregation, rng=report_generator()
        )
    elif claim.against is None:
        result = level(ours, aggregation, rng=report_generator())
    else:
        theirs = data.finals(claim.measure)[claim.against.label]
        if claim.theory:
            theirs = _predicted(theirs, claim.theory)
        result = difference(ours, theirs, aggregation, unit=unit, rng=report_generator())
    if claim.kind == "equal":
        margin = claim.by if unit == "percent" else claim.by / 100
        # A level equals 0 if its difference from 0 does.
        result = dataclasses.replace(result, kind="difference")
        return result.estimate, judge_equality(result, margin)
    return result.estimate, judge_direction(result, claim.kind, margin=claim.by)


def _unit(claim: Claim) -> Unit:
    """Return whether the difference of a sentence is in percent or in points."""
    compared = claim.against is not None and not claim.theory
    return "percent" if compared and (claim.by > 0 or claim.measure == SCORE) else "points"


def _predicted(without: ValuesByTask, activation: Activation) -> ValuesByTask:
    """Return the dormant fractions that the theory predicts with HR, run by run."""
    return {
        task: np.array([predicted_dormant(float(p), activation) for p in fractions])
        for task, fractions in without.items()
    }


def _judge_number(stated: Stated, data: PanelRuns) -> tuple[Estimate, Judgement]:
    measure = _source(stated)
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
        return Estimate(*(1 + bound / 100 for bound in result.estimate)), judgement
    return result.estimate, judge_size(result, stated.value)


def _number_text(stated: Stated) -> str:
    against = f" against {stated.against.label}" if stated.against is not None else ""
    return f"{stated.arm.label}{against}: {_MEASURE_NAMES.get(stated.measure, stated.measure)}"


def _source(claim: Claim | Stated) -> str:
    """Return the measure of the runs from which that of a claim is computed."""
    return _SOURCE_MEASURES.get(claim.measure, claim.measure)


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


def _select(values: ValuesByTask, tasks: Sequence[str]) -> ValuesByTask:
    return {task: values[task] for task in tasks}


def _slowdown(ours: Mapping[str, FloatArray], theirs: Mapping[str, FloatArray]) -> ValuesByTask:
    """Return how many times as long each of our runs takes as the mean of theirs, by task."""
    return {task: np.asarray(theirs[task].mean() / ours[task]) for task in ours if task in theirs}
