"""Runs grouped for comparison: by algorithm and environment, and within by variant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hadamard.core import identity
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.data.series import FloatArray, IntArray
from hadamard.report.measures import ScoreKind

POINTS = 100
"""Places along the budget at which a learning curve is evaluated."""


@dataclass(frozen=True, eq=False)
class Variant:
    """The runs of one label, by seed."""

    label: str
    runs: Sequence[RunData]

    @property
    def finished(self) -> list[RunData]:
        """The runs whose final numbers count."""
        return [run for run in self.runs if run.finished]

    @property
    def steps(self) -> int:
        """The budget."""
        return self.runs[0].steps

    @property
    def horizon(self) -> int:
        """The step at which its runs end."""
        return self.runs[0].horizon

    @property
    def protocol(self) -> int:
        """The version of the protocol its runs were trained under."""
        return self.runs[0].protocol

    @property
    def score_kind(self) -> ScoreKind:
        """The kind of score its runs are judged by."""
        return self.runs[0].score_kind

    def finals(self, measure: str) -> FloatArray:
        """Return a measure at the end of every finished run, NaN where it is missing."""
        return np.array([run.final(measure) for run in self.finished], dtype=np.float64)

    def score_curve(self, steps: FloatArray) -> FloatArray:
        """Return the latest score at each step, (seeds, steps); NaN beyond what a run reached."""
        curves = [run.score_series(self.score_kind).latest(steps) for run in self.runs]
        reached = np.array([[run.reached] for run in self.runs])
        return np.where(steps <= reached, curves, np.nan)

    def health_curve(self, measure: str) -> tuple[IntArray, FloatArray]:
        """Return the steps of all diagnoses, and a measure, (seeds, steps), NaN where missing."""
        steps = np.unique(np.concatenate([run.health_steps for run in self.runs]))
        curves = np.full((len(self.runs), len(steps)), np.nan)
        for curve, run in zip(curves, self.runs, strict=True):
            curve[np.searchsorted(steps, run.health_steps)] = run.health[measure]
        return steps, curves


@dataclass(frozen=True, eq=False)
class Section:
    """Variants that are compared with each other: of one algorithm on one environment."""

    algorithm: str
    env: str
    variants: Sequence[Variant]
    """Ordinary layers first, so that a baseline precedes the variants compared with it."""

    @property
    def name(self) -> str:
        """Algorithm and environment in words."""
        return f"{algorithm_name(self.algorithm)} on {self.env}"

    @property
    def runs(self) -> list[RunData]:
        """All runs, variant by variant."""
        return [run for variant in self.variants for run in variant.runs]

    def grid(self) -> FloatArray:
        """Return the steps at which learning curves are drawn.

        If all runs have evaluations, these are the evaluations' steps.
        """
        if all(run.score_kind == "evaluation" for run in self.runs):
            steps = np.unique(np.concatenate([run.score_series().steps for run in self.runs]))
            if steps.size:
                return steps.astype(np.float64)
        return np.linspace(0, max(run.steps for run in self.runs), POINTS + 1)[1:]

    def baseline(self, variant: Variant) -> Variant | None:
        """Return the variant that this one is compared with; None for the section's first.

        This is the ordinary layer with the same activation or, if there is none, the section's
        first variant. Its protocol and budget differ only if no earlier variant has the same.
        """
        earlier = self.variants[: self.variants.index(variant)]
        same_protocol = [v for v in earlier if v.protocol == variant.protocol] or earlier
        candidates = [v for v in same_protocol if v.steps == variant.steps] or same_protocol
        return _ordinary(candidates, variant) or next(iter(candidates), None)

    def without_layer(self, variant: Variant) -> Variant | None:
        """Return the ordinary layer with a variant's activation, budget and protocol, or None.

        The effect of a layer is measured against this alone; `baseline` may fall back on others.
        """
        training = (variant.steps, variant.protocol)
        others = [v for v in self.variants if v is not variant]
        return _ordinary([v for v in others if (v.steps, v.protocol) == training], variant)


def incomparable(ours: Variant, theirs: Variant) -> str:
    """Say why the scores of two variants do not compare; empty if they do."""
    if ours.protocol != theirs.protocol:
        return "their versions of the training protocol differ"
    if ours.score_kind != theirs.score_kind:
        return "one is judged by other games than the other"
    return "the budgets differ" if ours.steps != theirs.steps else ""


def _ordinary(candidates: Iterable[Variant], variant: Variant) -> Variant | None:
    """Return the candidate with an ordinary layer and the same activation; the most similar one."""
    spec = variant.runs[0].spec
    ordinary = [
        other
        for other in candidates
        if other.runs[0].spec["net.activation"] == spec["net.activation"]
        and identity.ordinary(other.runs[0].spec)
    ]
    return min(
        ordinary, key=lambda other: len(identity.changed(other.runs[0].spec, spec)), default=None
    )


def sections(runs: Sequence[RunData]) -> list[Section]:
    """Group runs by algorithm and environment, and within by variant."""
    grouped: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in runs:
        grouped.setdefault((run.algorithm, run.env), {}).setdefault(run.label, []).append(run)
    groups = []
    for (algorithm, env), by_label in grouped.items():
        ordered = sorted(
            by_label.items(), key=lambda item: (*identity.order(item[1][0].spec), item[0])
        )
        variants = [
            Variant(label, sorted(seeds, key=lambda run: run.seed)) for label, seeds in ordered
        ]
        groups.append(Section(algorithm, env, variants))
    return groups
