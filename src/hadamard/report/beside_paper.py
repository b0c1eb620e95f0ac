"""The numbers the paper states, beside what the runs at hand give for the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hadamard.report import stats
from hadamard.report.labels import algorithm_name
from hadamard.report.reading import finite, number
from hadamard.report.runs import FloatArray, RunData, Section
from hadamard.report.stats import Estimate
from hadamard.report.tables import Table
from hadamard.report.together import Together, combine

if TYPE_CHECKING:
    from hadamard.experiments.paper import Arm, Experiment, Panel, Stated

_MEASURED = ("dormant_fraction", "effective_rank")
_NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


class _Row(NamedTuple):
    experiment: Experiment
    panel: Panel
    stated: Stated
    label: str
    """Our label of the paper's arm."""
    ours: Estimate
    unit: str


def paper_table(found: Sequence[Section]) -> tuple[Table, list[str]] | None:
    """Return the paper's numbers beside ours, and how far they may be compared.

    None if the runs have nothing to do with any of them.
    """
    from hadamard.experiments.paper import EXPERIMENTS

    by_algorithm: dict[str, list[Section]] = {}
    for section in found:
        by_algorithm.setdefault(section.algorithm, []).append(section)
    together = {one.algorithm: one for one in combine(found, least=1).found}
    rows: dict[Stated, _Row] = {}
    for experiment in EXPERIMENTS.values():
        for panel in experiment.panels:
            sections = by_algorithm.get(panel.algorithm)
            if not sections:
                continue
            labels = _labels(panel, sections)
            for stated in experiment.stated:
                if stated.value is None or stated.algorithm != panel.algorithm:
                    continue
                row = _row(experiment, panel, stated, labels, sections, together)
                if row is not None:
                    rows.setdefault(stated, row)
    if not rows:
        return None
    notes = [_protocol(algorithm, rows.values(), of) for algorithm, of in by_algorithm.items()]
    return _table(list(rows.values())), [note for note in notes if note]


def _labels(panel: Panel, sections: Sequence[Section]) -> dict[str, str]:
    """Return our label of each of the panel's arms that we have runs of.

    A run belongs to the arm that says most about it: tanh with LayerNorm is not the arm tanh.
    """
    from hadamard.experiments.grid import VARIANTS

    def wanted(arm: Arm) -> dict[str, Any]:
        plain = {"net.layer": "plain", "redo.enabled": False}
        return {**plain, **VARIANTS.get(arm.variant, {}), **arm.overrides}

    found: dict[str, str] = {}
    specs = {v.label: v.runs[0].spec for section in sections for v in section.variants}
    for label, spec in specs.items():
        fitting = [
            arm
            for arm in panel.trained
            if all(spec.get(name) == value for name, value in wanted(arm).items())
        ]
        if fitting:
            found.setdefault(max(fitting, key=lambda arm: len(wanted(arm))).label, label)
    return found


def _row(
    experiment: Experiment,
    panel: Panel,
    stated: Stated,
    labels: Mapping[str, str],
    sections: Sequence[Section],
    together: Mapping[str, Together],
) -> _Row | None:
    label = labels.get(stated.label)
    if label is None:
        return None
    aggregate = panel.aggregations[0]
    one = together.get(panel.algorithm)
    if stated.measure in _MEASURED:
        values = _finals(sections, label, stated.measure)
        return _Row(experiment, panel, stated, label, _estimate(values, "mean"), "mean of tasks")
    scores = one.scores if one is not None else {}
    yardstick = panel.yardstick or panel.baseline
    if (
        one is not None
        and one.normalisation == "baseline_min_max"
        and labels.get(yardstick.label) != one.baseline
    ):
        scores = {}  # normalised by another variant's scores than in the paper
    if stated.measure == "score" and one is not None and label in scores:
        unit = f"{stats.AGGREGATES[aggregate].label}, {one.unit}"
        ours = _estimate(scores[label], aggregate)
        return _Row(experiment, panel, stated, label, ours, unit)
    if stated.measure == "change":
        of_dormancy = "score" not in experiment.measures
        before = _before(panel, stated, labels, sections, label)
        if before is None:
            return None
        unit = f"% against {before}, {'dormant neurons' if of_dormancy else 'score'}"
        if of_dormancy:
            old, new = (_finals(sections, name, "dormant_fraction") for name in (before, label))
        elif before in scores and label in scores:
            old, new = dict(scores[before]), dict(scores[label])
        else:
            return None
        return _Row(experiment, panel, stated, label, _change(old, new, aggregate), unit)
    return None


def _before(
    panel: Panel,
    stated: Stated,
    labels: Mapping[str, str],
    sections: Sequence[Section],
    label: str,
) -> str | None:
    """Return our label of what the paper's change is measured against."""
    if "over tanh" in stated.unit or "without HR" in stated.unit:
        for section in sections:
            for variant in section.variants:
                if variant.label == label:
                    baseline = section.baseline(variant)
                    return baseline.label if baseline is not None else None
    return labels.get(panel.baseline.label)


def _finals(sections: Sequence[Section], label: str, measure: str) -> dict[str, FloatArray]:
    found = {}
    for section in sections:
        for variant in section.variants:
            values = finite(variant.finals(measure))
            if variant.label == label and values.size:
                found[section.env] = values
    return found


def _estimate(values: Mapping[str, FloatArray], aggregate: str) -> Estimate:
    if not values:
        return _NOTHING
    return stats.estimate(values, aggregate, rng=np.random.default_rng(0))


def _change(
    old: Mapping[str, FloatArray], new: Mapping[str, FloatArray], aggregate: str
) -> Estimate:
    both = [task for task in old if task in new]
    if not both:
        return _NOTHING
    before, after = ({task: side[task] for task in both} for side in (old, new))
    return stats.change(before, after, aggregate, rng=np.random.default_rng(0))


def told(ours: Estimate) -> str:
    """Write an estimate with its interval."""
    if not np.isfinite(ours.value):
        return "–"
    if not ours.has_interval:
        return f"{number(ours.value)} (no interval)"
    return f"{number(ours.value)} ({number(ours.low)} to {number(ours.high)})"


def _table(rows: Sequence[_Row]) -> Table:
    measures = {"dormant_fraction": "dormant neurons", "effective_rank": "effective rank"}
    shown = {
        "in the paper": [row.stated.where for row in rows],
        "algorithm": [row.panel.algorithm for row in rows],
        "variant": [row.stated.label for row in rows],
        "measure": [measures.get(row.stated.measure, row.stated.measure) for row in rows],
        "paper": [f"{row.stated.value:g} {row.stated.unit}" for row in rows],
        "ours": [told(row.ours) for row in rows],
        "ours is": [row.unit for row in rows],
    }
    data: dict[str, list[Any]] = {
        "experiment": [row.experiment.name for row in rows],
        "where": [row.stated.where for row in rows],
        "algorithm": [row.panel.algorithm for row in rows],
        "paper_variant": [row.stated.label for row in rows],
        "our_variant": [row.label for row in rows],
        "measure": [row.stated.measure for row in rows],
        "paper": [row.stated.value for row in rows],
        "paper_unit": [row.stated.unit for row in rows],
        "ours": [row.ours.value for row in rows],
        "ours_low": [row.ours.low for row in rows],
        "ours_high": [row.ours.high for row in rows],
        "ours_unit": [row.unit for row in rows],
    }
    return Table("paper", "The paper's numbers beside ours, with 95 % intervals", shown, data)


def _protocol(algorithm: str, rows: Any, sections: Sequence[Section]) -> str:
    """Say what was run for the two columns, and whether it was the same."""
    panels = [row.panel for row in rows if row.panel.algorithm == algorithm]
    if not panels:
        return ""
    panel = panels[0]
    runs = [run for section in sections for run in section.runs]
    tasks, budgets = [section.env for section in sections], sorted({run.steps for run in runs})
    ours = (
        f"{_tasks(tasks)}, {' or '.join(f'{steps:,}' for steps in budgets)} steps, {_seeds(runs)}"
    )
    theirs = f"{_tasks(panel.tasks)}, {panel.steps:,} steps, {panel.seeds} seeds"
    same = {task.lower() for task in panel.tasks} == {task.lower() for task in tasks}
    verdict = (
        "The tasks and the budget are the paper's."
        if same and budgets == [panel.steps]
        else "That is another protocol: signs and orders may be compared, the numbers may not."
    )
    return f"{algorithm_name(algorithm)}: the paper has {theirs}; here it is {ours}. {verdict}"


def _tasks(tasks: Sequence[str]) -> str:
    suites = dict.fromkeys(task.partition("/")[0] for task in tasks)
    return f"{len(tasks)} task{'s' if len(tasks) > 1 else ''} of {' and '.join(suites)}"


def _seeds(runs: Sequence[RunData]) -> str:
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        counts[run.env, run.label] = counts.get((run.env, run.label), 0) + 1
    low, high = min(counts.values()), max(counts.values())
    return f"{low} seed{'' if high == 1 else 's'}" if low == high else f"{low} to {high} seeds"
