"""All tasks of one algorithm together: scores on one scale, and what they amount to."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.runs import FloatArray, Section, Variant, incomparable
from hadamard.report.pages.reading import finite
from hadamard.report.statistics import estimates as stats
from hadamard.report.statistics import normalise as scales
from hadamard.report.statistics.decision import Difference, difference
from hadamard.report.statistics.estimates import Band, Estimate

if TYPE_CHECKING:
    from hadamard.experiments.paper import Panel

SHOWN = ("mean", "median", "iqm", "optimality_gap")
"""Aggregates that are always shown, in that order."""
COMPARED = "iqm"
"""The aggregate that variants are compared by."""
_CURVE_POINTS = 50
_CURVE_RESAMPLES = 300
_PROFILE_POINTS = 81
_OWN_SCALE = "baseline_min_max"
# What a suite's scores are normalised by where the paper has no experiment with it.
_BY_SUITE = {
    "atari": "human_normalised",
    "humanoid": "success_normalised",
    "dmc": "per_thousand",
    "dmc-state": "per_thousand",
}


@dataclass(frozen=True, eq=False)
class Together:
    """The final scores of one algorithm's variants on the tasks they share."""

    algorithm: str
    normalisation: str
    """One of `normalise.NORMALISATIONS`."""
    baseline: str
    """The label that others are compared with."""
    scores: Mapping[str, Mapping[str, FloatArray]]
    """By label and task, normalised, one number a finished seed."""
    curves: Mapping[str, Mapping[str, FloatArray]]
    """By label and task, normalised, (seeds, places along the budget)."""
    steps: FloatArray
    """The places of the curves: steps, or shares of training where budgets differ."""
    same_budget: bool
    left_out: Sequence[str]
    """What is not in it and why, in sentences."""
    not_compared: Mapping[str, str]
    """Labels whose scores do not compare with the baseline's on some task, and why."""

    @property
    def tasks(self) -> list[str]:
        """The tasks that all of its variants have."""
        return list(self.scores[self.baseline])

    @property
    def shown(self) -> tuple[str, ...]:
        """The aggregates to show: the usual ones, and each reading of what the paper says."""
        panel = _panel_of(self.algorithm, self.tasks)
        return tuple(dict.fromkeys((*SHOWN, *(panel.aggregations if panel is not None else ()))))

    @property
    def unit(self) -> str:
        """What a number is, in words."""
        return scales.NORMALISATIONS[self.normalisation]

    def estimates(self, aggregate: str) -> dict[str, Estimate]:
        """Return an aggregate of each variant with its interval."""
        return {
            label: stats.estimate(of, aggregate, rng=_generator())
            for label, of in self.scores.items()
        }

    @property
    def compared(self) -> list[str]:
        """The labels that are compared with the baseline: the others of its budget and protocol."""
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
            label: difference(self.scores[label], theirs, COMPARED, rng=_generator())
            for label in self.compared
        }

    @functools.cached_property
    def improvements(self) -> dict[str, Estimate]:
        """How likely a run of each compared variant beats one of the baseline's."""
        theirs = self.scores[self.baseline]
        return {
            label: stats.probability_of_improvement(self.scores[label], theirs, rng=_generator())
            for label in self.compared
        }

    def comparison(self, label: str) -> str:
        """Say how a variant compares with the baseline."""
        name = stats.AGGREGATES[COMPARED].label
        said = self.differences[label].sentence(label, self.baseline)
        return f"{name}: {said}"

    def profiles(self) -> tuple[FloatArray, dict[str, Band]]:
        """Return scores, and for each variant the fraction of its runs above them."""
        values = np.concatenate([v for of in self.scores.values() for v in of.values()])
        low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
        taus = np.linspace(low, low + 1.02 * (high - low), _PROFILE_POINTS)
        return taus, {
            label: stats.performance_profile(of, taus, rng=_generator(), resamples=1000)
            for label, of in self.scores.items()
        }

    def curve(self, label: str) -> Band:
        """Return the IQM over training, where every run has a value."""
        return stats.aggregate_curve(
            self.curves[label], "iqm", rng=_generator(), resamples=_CURVE_RESAMPLES
        )


def _generator() -> np.random.Generator:
    """Return a generator that starts the same each time: a report does not change by itself."""
    return np.random.default_rng(0)


class Combined(NamedTuple):
    """What could be put together, and of which algorithms nothing could and why."""

    found: list[Together]
    refused: list[str]


def combine(found: Sequence[Section], least: int = 2, by: str | None = None) -> Combined:
    """Put the tasks of each algorithm together, where there are at least so many.

    ``by`` is the normalisation; by default the paper's for each algorithm.
    """
    by_algorithm: dict[str, list[Section]] = {}
    for section in found:
        by_algorithm.setdefault(section.algorithm, []).append(section)
    made, refused = [], []
    for algorithm, of in by_algorithm.items():
        if len(of) >= least:
            try:
                made.append(_together(algorithm, of, least, by))
            except ValueError as error:
                refused.append(f"{algorithm_name(algorithm)}: {error}")
    return Combined(made, refused)


def normalisation_of(algorithm: str, envs: Sequence[str]) -> str:
    """Return what the paper normalises such scores by, or what fits the suite.

    Where it has nothing of the kind, or suites are mixed, scores are normalised by the baseline's
    lowest and highest.
    """
    panel = _panel_of(algorithm, envs)
    if panel is not None:
        return panel.normalisation
    suites = {env.partition("/")[0] for env in envs}
    return _BY_SUITE.get(suites.pop(), _OWN_SCALE) if len(suites) == 1 else _OWN_SCALE


def _panel_of(algorithm: str, envs: Sequence[str]) -> Panel | None:
    """Return the first panel of the paper with this algorithm on the suite of these tasks."""
    from hadamard.experiments.paper import EXPERIMENTS

    suites = {env.partition("/")[0] for env in envs}
    for experiment in EXPERIMENTS.values():
        for panel in experiment.panels:
            if panel.algorithm == algorithm and {panel.tasks[0].partition("/")[0]} == suites:
                return panel
    return None


def baseline_of(variants: Mapping[str, Variant]) -> str:
    """Return the label that the others are compared with: plain ReLU, or the first of them."""
    for label, variant in variants.items():
        spec = variant.runs[0].spec
        plain = (spec["net.layer"], spec["net.activation"], spec["redo.enabled"])
        if plain == ("plain", "relu", False):
            return label
    return next(iter(variants))


def _together(algorithm: str, of: Sequence[Section], least: int, by: str | None = None) -> Together:
    left_out: list[str] = []
    tables = {section.env: _finals(section) for section in of}
    labels = dict.fromkeys(label for table in tables.values() for label in table)
    counts = {label: sum(label in table for table in tables.values()) for label in labels}
    most = max(counts.values(), default=0)
    for label, count in counts.items():
        if 2 * count < most:
            left_out.append(f"{label} is left out: it has final scores on {count} of {most} tasks.")
            del labels[label]
    tasks = [env for env, table in tables.items() if all(label in table for label in labels)]
    for env in tables.keys() - set(tasks):
        lacking = [label for label in labels if label not in tables[env]]
        left_out.append(f"{env} is left out: {', '.join(lacking)} has no final score there.")
    by = by or normalisation_of(algorithm, list(tables))
    first = {v.label: v for section in of for v in section.variants if v.label in labels}
    if not first:
        raise ValueError("no run with a score is finished, so nothing is aggregated.")
    baseline = baseline_of({label: first[label] for label in labels})
    finals: dict[str, dict[str, FloatArray]] = {label: {} for label in labels}
    curves: dict[str, dict[str, FloatArray]] = {label: {} for label in labels}
    budgets = set()
    not_compared: dict[str, str] = {}
    for section in of:
        if section.env not in tasks:
            continue
        variants = {v.label: v for v in section.variants}
        budget = max(run.steps for run in section.runs)
        grid = np.linspace(0, budget, _CURVE_POINTS + 1)[1:]
        drawn = {label: variants[label].score_curve(grid) for label in labels}
        try:
            known = {}
            if by == _OWN_SCALE:
                recorded = variants[baseline].score_curve(section.grid())
                known = {section.env: scales.baseline_scale(recorded, section.env)}
            for label in labels:
                raw = tables[section.env][label]
                curves[label][section.env] = scales.normalise(drawn[label], section.env, by, known)
                finals[label][section.env] = scales.normalise(raw, section.env, by, known)
            budgets.add(budget)
            for label in labels:
                if why := incomparable(variants[label], variants[baseline]):
                    not_compared[label] = why
        except ValueError as error:
            left_out.append(f"{section.env} is left out: {error}.")
            for of_label in (*curves.values(), *finals.values()):
                of_label.pop(section.env, None)
    kept = len(finals[baseline])
    if kept < least:
        raise ValueError(
            f"there is nothing to aggregate, {'only one task' if kept else 'no task'} has final "
            f"scores of every variant. {' '.join(left_out)}"
        )
    places = np.linspace(0, max(budgets), _CURVE_POINTS + 1)[1:]
    if len(budgets) > 1:
        places = 100 * places / max(budgets)
    return Together(
        algorithm, by, baseline, finals, curves, places, len(budgets) == 1, sorted(left_out),
        not_compared,
    )  # fmt: skip


def _finals(section: Section) -> dict[str, FloatArray]:
    """Return the final scores of the variants that have any."""
    found = {variant.label: finite(variant.finals("score")) for variant in section.variants}
    return {label: values for label, values in found.items() if values.size}
