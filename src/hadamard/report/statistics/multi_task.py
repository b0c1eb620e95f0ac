"""The scores of one algorithm's variants over several tasks: normalized, aggregated, compared."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hadamard.core.identity import ordinary
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.sections import Section, Variant, incomparable
from hadamard.report.data.series import FloatArray
from hadamard.report.statistics import estimates as stats
from hadamard.report.statistics import normalize as scales
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.difference import Difference, difference
from hadamard.report.statistics.estimates import Band, Estimate, report_generator
from hadamard.report.statistics.task_scores import finite

if TYPE_CHECKING:
    from hadamard.experiments.paper import Panel

SHOWN_AGGREGATES = ("mean", "median", "iqm", "optimality_gap")
"""Aggregates that are always shown, in this order."""
COMPARISON_AGGREGATE = "iqm"
"""The aggregate by which variants are compared."""
_CURVE_POINTS = 50
_CURVE_RESAMPLES = 300
_PROFILE_POINTS = 81
# The normalization of a suite's scores where the paper has no experiment with it.
_SUITE_NORMALIZATIONS = {
    "atari": "human_normalized",
    "humanoid": "success_normalized",
    "dmc": "per_thousand",
    "dmc-state": "per_thousand",
}


@dataclass(frozen=True, eq=False)
class MultiTaskScores:
    """The final scores and learning curves of one algorithm's variants on the tasks they share."""

    algorithm: str
    normalization: str
    """One of `normalize.NORMALIZATIONS`."""
    baseline: str
    """The label with which the others are compared."""
    scores: Mapping[str, Mapping[str, FloatArray]]
    """Normalized final scores by label and task, one number per finished seed."""
    curves: Mapping[str, Mapping[str, FloatArray]]
    """Normalized scores over training by label and task, (seeds, points along the budget)."""
    steps: FloatArray
    """The points of the curves: steps, or percent of training where budgets differ."""
    same_budget: bool
    left_out: Sequence[str]
    """Which variants and tasks are left out and why, in sentences."""
    not_compared: Mapping[str, str]
    """Labels whose scores do not compare with the baseline's on some task, and why."""

    @property
    def tasks(self) -> list[str]:
        """The tasks, on each of which all variants have scores."""
        return list(self.scores[self.baseline])

    @property
    def shown_aggregates(self) -> tuple[str, ...]:
        """The aggregates to show: the usual ones, and those of the paper for this algorithm."""
        panel = _paper_panel(self.algorithm, self.tasks)
        aggregations = panel.aggregations if panel is not None else ()
        return tuple(dict.fromkeys((*SHOWN_AGGREGATES, *aggregations)))

    @property
    def unit(self) -> str:
        """What a normalized score means, in words."""
        return scales.NORMALIZATIONS[self.normalization]

    def estimates(self, aggregate: str) -> dict[str, Estimate]:
        """Return an aggregate of each variant with its interval."""
        return {
            label: stats.estimate(scores, aggregate, rng=report_generator())
            for label, scores in self.scores.items()
        }

    @property
    def compared(self) -> list[str]:
        """The labels compared with the baseline: those with its budget, protocol and score kind."""
        return [
            label
            for label in self.scores
            if label != self.baseline and label not in self.not_compared
        ]

    @functools.cached_property
    def differences(self) -> dict[str, Difference]:
        """How each compared variant's aggregate differs from the baseline's."""
        theirs = self.scores[self.baseline]
        return {
            label: difference(
                self.scores[label], theirs, COMPARISON_AGGREGATE, rng=report_generator()
            )
            for label in self.compared
        }

    @functools.cached_property
    def improvements(self) -> dict[str, Estimate]:
        """How likely a run of each compared variant beats a run of the baseline."""
        theirs = self.scores[self.baseline]
        return {
            label: stats.probability_of_improvement(
                self.scores[label], theirs, rng=report_generator()
            )
            for label in self.compared
        }

    def comparison(self, label: str) -> str:
        """Return a sentence that compares a variant with the baseline."""
        name = AGGREGATES[COMPARISON_AGGREGATE].label
        return f"{name}: {self.differences[label].sentence(label, self.baseline)}"

    def profiles(self) -> tuple[FloatArray, dict[str, Band]]:
        """Return thresholds, and for each variant the fraction of its runs above each of them."""
        values = np.concatenate(
            [scores for by_task in self.scores.values() for scores in by_task.values()]
        )
        low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
        taus = np.linspace(low, low + 1.02 * (high - low), _PROFILE_POINTS)
        return taus, {
            label: stats.performance_profile(scores, taus, rng=report_generator(), resamples=1000)
            for label, scores in self.scores.items()
        }

    def curve(self, label: str) -> Band:
        """Return the IQM over training, at the points where every run has a value."""
        return stats.aggregate_curve(
            self.curves[label], "iqm", rng=report_generator(), resamples=_CURVE_RESAMPLES
        )


class CombinedTasks(NamedTuple):
    """The scores of each algorithm over its tasks, and why other algorithms have none."""

    scores: list[MultiTaskScores]
    failures: list[str]


def combine_tasks(
    sections: Sequence[Section], min_tasks: int = 2, normalization: str | None = None
) -> CombinedTasks:
    """Combine the tasks of each algorithm that has at least ``min_tasks`` of them.

    ``normalization`` is by default the paper's for each algorithm.
    """
    by_algorithm: dict[str, list[Section]] = {}
    for section in sections:
        by_algorithm.setdefault(section.algorithm, []).append(section)
    combined, failures = [], []
    for algorithm, on_tasks in by_algorithm.items():
        if len(on_tasks) >= min_tasks:
            try:
                combined.append(_combine(algorithm, on_tasks, min_tasks, normalization))
            except ValueError as error:
                failures.append(f"{algorithm_name(algorithm)}: {error}")
    return CombinedTasks(combined, failures)


def normalization_of(algorithm: str, envs: Sequence[str]) -> str:
    """Return the paper's normalization for an algorithm on some tasks, else that of their suite.

    If the suite has none, or the tasks are of several suites, scores are normalized by the
    baseline's lowest and highest score.
    """
    panel = _paper_panel(algorithm, envs)
    if panel is not None:
        return panel.normalization
    suites = {env.partition("/")[0] for env in envs}
    suite = suites.pop() if len(suites) == 1 else ""
    return _SUITE_NORMALIZATIONS.get(suite, scales.OWN_BASELINE)


def _paper_panel(algorithm: str, envs: Sequence[str]) -> Panel | None:
    """Return the paper's first panel with this algorithm on the suite of these tasks."""
    from hadamard.experiments.paper import EXPERIMENTS

    suites = {env.partition("/")[0] for env in envs}
    for experiment in EXPERIMENTS.values():
        for panel in experiment.panels:
            if panel.algorithm == algorithm and {panel.tasks[0].partition("/")[0]} == suites:
                return panel
    return None


def baseline_of(variants: Mapping[str, Variant]) -> str:
    """Return the label with which others are compared: plain ReLU, or the first label."""
    for label, variant in variants.items():
        spec = variant.runs[0].spec
        if ordinary(spec) and spec["net.activation"] == "relu":
            return label
    return next(iter(variants))


def _combine(
    algorithm: str, sections: Sequence[Section], min_tasks: int, normalization: str | None = None
) -> MultiTaskScores:
    raw_finals = {section.env: _finals(section) for section in sections}
    labels, left_out = _common_labels(raw_finals)
    variants_by_label = {v.label: v for section in sections for v in section.variants}
    if not labels:
        raise ValueError("no run with a score is finished, so nothing is aggregated.")
    baseline = baseline_of({label: variants_by_label[label] for label in labels})
    normalization = normalization or normalization_of(algorithm, list(raw_finals))
    finals: dict[str, dict[str, FloatArray]] = {label: {} for label in labels}
    curves: dict[str, dict[str, FloatArray]] = {label: {} for label in labels}
    budgets = set()
    not_compared: dict[str, str] = {}
    for section in sections:
        env, variants = section.env, {v.label: v for v in section.variants}
        if lacking := [label for label in labels if label not in raw_finals[env]]:
            left_out.append(f"{env} is left out: {', '.join(lacking)} has no final score there.")
            continue
        budget = max(run.steps for run in section.runs)
        grid = np.linspace(0, budget, _CURVE_POINTS + 1)[1:]
        try:
            own_scale = {}
            if normalization == scales.OWN_BASELINE:
                recorded = variants[baseline].score_curve(section.grid())
                own_scale = {env: scales.baseline_scale(recorded, env)}
            normalize = functools.partial(
                scales.normalize, env=env, by=normalization, baselines=own_scale
            )
            on_task = {
                label: (
                    normalize(variants[label].score_curve(grid)),
                    normalize(raw_finals[env][label]),
                )
                for label in labels
            }
        except ValueError as error:
            left_out.append(f"{env} is left out: {error}.")
            continue
        budgets.add(budget)
        for label, (curve, final) in on_task.items():
            curves[label][env], finals[label][env] = curve, final
            if reason := incomparable(variants[label], variants[baseline]):
                not_compared[label] = reason
    task_count = len(finals[baseline])
    if task_count < min_tasks:
        raise ValueError(
            f"there is nothing to aggregate: {'only one task' if task_count else 'no task'} has "
            f"final scores of every variant. {' '.join(left_out)}"
        )
    points = np.linspace(0, max(budgets), _CURVE_POINTS + 1)[1:]
    if len(budgets) > 1:
        points = 100 * points / max(budgets)
    return MultiTaskScores(
        algorithm, normalization, baseline, finals, curves, points, len(budgets) == 1,
        sorted(left_out), not_compared,
    )  # fmt: skip


def _common_labels(finals: Mapping[str, Mapping[str, FloatArray]]) -> tuple[list[str], list[str]]:
    """Return the labels with scores on at least half as many tasks as the label with the most.

    The second list says which labels are left out.
    """
    counts: dict[str, int] = {}
    for on_task in finals.values():
        for label in on_task:
            counts[label] = counts.get(label, 0) + 1
    most = max(counts.values(), default=0)
    left_out = [
        f"{label} is left out: it has final scores on {count} of {most} tasks."
        for label, count in counts.items()
        if 2 * count < most
    ]
    return [label for label, count in counts.items() if 2 * count >= most], left_out


def _finals(section: Section) -> dict[str, FloatArray]:
    """Return the final scores of the variants that have any."""
    finals = {variant.label: finite(variant.finals("score")) for variant in section.variants}
    return {label: values for label, values in finals.items() if values.size}
