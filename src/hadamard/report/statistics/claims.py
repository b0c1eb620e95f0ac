"""What the runs say of the paper's sentences and numbers, by the project's one rule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.data.runs import FloatArray
from hadamard.report.statistics import decision
from hadamard.report.statistics.decision import Judgement
from hadamard.report.statistics.estimates import Estimate
from hadamard.report.statistics.panel import SCORE, ByTask, PanelRuns, generator

if TYPE_CHECKING:
    from hadamard.experiments.paper import Arm, Claim, Experiment, Stated

UNMEASURED: decision.Verdict = "undecided"


@dataclass(frozen=True)
class Row:
    """One claim, what our runs give for it, and the verdict."""

    algorithm: str
    text: str
    where: str
    kind: str
    """direction, size or equality."""
    paper: float | None
    """The number the paper states, of a size."""
    unit: str
    """Of the number: ours is in the paper's."""
    ours: Estimate
    verdict: decision.Verdict
    reason: str


_NOTHING = Estimate(math.nan, math.nan, math.nan)


def rows(experiment: Experiment, panels: Mapping[str, PanelRuns]) -> list[Row]:
    """Judge every claim of an experiment, sentences first, then numbers."""
    judged = [_claim(claim, panels[claim.algorithm]) for claim in experiment.claims]
    return judged + [_stated(stated, panels[stated.algorithm]) for stated in experiment.stated]


def _claim(claim: Claim, data: PanelRuns) -> Row:
    kind = "equality" if claim.kind == "equal" else "direction"
    in_percent = claim.against is not None and (claim.by > 0 or claim.measure == SCORE)
    unit = "percent" if in_percent else "points"

    def row(ours: Estimate, judgement: Judgement) -> Row:
        return Row(
            claim.algorithm, claim.text, claim.where, kind, None, unit, ours,
            judgement.verdict, judgement.reason,
        )  # fmt: skip

    names = [arm for arm in (claim.arm, claim.against) if arm is not None]
    if missing := _missing(names, claim.measure, data):
        return row(_NOTHING, Judgement(UNMEASURED, missing))
    ours = data.finals(claim.measure)[claim.arm.label]
    aggregation = data.aggregations(claim.measure)[0]
    if claim.since is not None:
        before = data.at(claim.measure, claim.since * data.end)[claim.arm.label]
        both = [task for task in ours if task in before]
        if not both:
            return row(_NOTHING, Judgement(UNMEASURED, "no value was measured that early"))
        found = decision.difference(
            _only(ours, both), _only(before, both), aggregation, rng=generator()
        )
    elif claim.against is None:
        found = decision.level(ours, aggregation, rng=generator())
    else:
        theirs = data.finals(claim.measure)[claim.against.label]
        found = decision.difference(
            ours, theirs, aggregation, unit="percent" if in_percent else "points", rng=generator()
        )
    if claim.kind == "equal":
        margin = claim.by if in_percent else claim.by / 100
        found = dataclasses.replace(found, of="change")  # a level is compared with 0
        return row(found.estimate, decision.judge_equality(found, margin))
    return row(found.estimate, decision.judge_direction(found, claim.kind, beyond=claim.by))


def _stated(stated: Stated, data: PanelRuns) -> Row:
    measure = _READ_FROM.get(stated.measure, stated.measure)

    def row(ours: Estimate, judgement: Judgement) -> Row:
        against = f" against {stated.against.label}" if stated.against is not None else ""
        words = f"{stated.arm.label}{against}: {_MEASURES.get(stated.measure, stated.measure)}"
        return Row(
            stated.algorithm, words, stated.where, "size", stated.value, stated.unit, ours,
            judgement.verdict, judgement.reason,
        )  # fmt: skip

    names = [arm for arm in (stated.arm, stated.against) if arm is not None]
    if missing := _missing(names, measure, data):
        return row(_NOTHING, Judgement(UNMEASURED, missing))
    ours = data.finals(measure)[stated.arm.label]
    aggregation = data.aggregations(measure)[0]
    if stated.measure == "time":
        assert stated.against is not None
        found = decision.level(
            _slowdown(ours, data.finals(measure)[stated.against.label]), "mean", rng=generator()
        )
    elif stated.against is None:
        found = decision.level(ours, aggregation, rng=generator())
    else:
        theirs = data.finals(measure)[stated.against.label]
        found = decision.difference(ours, theirs, aggregation, unit="percent", rng=generator())
    if stated.measure == "relative":  # 1.17 of the baseline is a change of 17 %
        judgement = decision.judge_size(found, 100 * (stated.value - 1))
        return row(Estimate(*(1 + bound / 100 for bound in found.estimate)), judgement)
    return row(found.estimate, decision.judge_size(found, stated.value))


# What is read from the runs for measures that are made of others.
_READ_FROM = {
    "change": SCORE,
    "relative": SCORE,
    "time": "steps_per_second",
    "dormancy_change": "dormant_fraction",
}
_MEASURES = {
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


def _only(values: ByTask, tasks: Sequence[str]) -> ByTask:
    return {task: values[task] for task in tasks}


def _slowdown(ours: Mapping[str, FloatArray], theirs: Mapping[str, FloatArray]) -> ByTask:
    """Return how many times as long a run of ours takes, by task; of each seed of ours."""
    return {task: np.asarray(theirs[task].mean() / ours[task]) for task in ours if task in theirs}
