"""The numbers the paper states, beside what the runs at hand give for the same thing."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.runs import FloatArray, Section, Variant
from hadamard.report.measures import MEASURES, number
from hadamard.report.pages.reading import counted, finite, spanned
from hadamard.report.pages.tables import Table
from hadamard.report.statistics import estimates as stats
from hadamard.report.statistics.estimates import Estimate
from hadamard.report.statistics.together import Together, combine

if TYPE_CHECKING:
    from hadamard.experiments.paper import Arm, Experiment, Panel, Stated

_MEASURED = ("dormant_fraction", "effective_rank")
_NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


class _Ground(NamedTuple):
    """The runs of one algorithm and one budget: what numbers beside the paper's are made of."""

    steps: int
    sections: Sequence[Section]
    """With the variants of this budget only."""
    together: Together | None
    left_out: Sequence[str]
    """What is not in it and why, in sentences."""

    @property
    def tasks(self) -> list[str]:
        """The tasks that all variants have finished, so that every number is of the same."""
        if self.together is not None:
            return self.together.tasks
        return [s.env for s in self.sections if all(v.finished for v in s.variants)]


class _Row(NamedTuple):
    experiment: Experiment
    panel: Panel
    stated: Stated
    label: str
    """Our label of the paper's arm."""
    ours: Estimate
    unit: str
    steps: int
    """The budget of our runs."""


def paper_table(found: Sequence[Section]) -> tuple[Table, list[str]] | None:
    """Return the paper's numbers beside ours, and how far they may be compared.

    None if the runs have nothing to do with any of them.
    """
    from hadamard.experiments.paper import EXPERIMENTS

    by_algorithm: dict[str, list[Section]] = {}
    for section in found:
        by_algorithm.setdefault(section.algorithm, []).append(section)
    grounds: dict[tuple[str, int], _Ground] = {}
    rows: dict[Stated, _Row] = {}
    for experiment in EXPERIMENTS.values():
        for panel in experiment.panels:
            sections = by_algorithm.get(panel.algorithm, [])
            steps = _budget(experiment, panel, sections)
            if steps is None:
                continue
            key = panel.algorithm, steps
            if key not in grounds:
                grounds[key] = _ground(sections, steps)
            for stated in experiment.stated:
                if stated.value is None or stated.algorithm != panel.algorithm:
                    continue
                row = _row(experiment, panel, stated, grounds[key])
                if row is not None:
                    rows.setdefault(stated, row)
    if not rows:
        return None
    panels: dict[tuple[str, int], Panel] = {}
    for row in rows.values():
        panels.setdefault((row.panel.algorithm, row.steps), row.panel)
    notes = [_protocol(panel, grounds[key]) for key, panel in panels.items()]
    return _table(list(rows.values())), notes


def _arm(panel: Panel, variant: Variant) -> Arm | None:
    """Return the panel's arm that a variant's finished runs are of.

    It is the arm that says most about them: tanh with LayerNorm is not the arm tanh.
    """
    from hadamard.experiments.grid import VARIANTS

    def wanted(arm: Arm) -> dict[str, Any]:
        plain = {"net.layer": "plain", "redo.enabled": False}
        return {**plain, **VARIANTS.get(arm.variant, {}), **arm.overrides}

    spec = variant.runs[0].spec
    fitting = [
        arm
        for arm in panel.trained
        if variant.finished and all(spec.get(name) == value for name, value in wanted(arm).items())
    ]
    return max(fitting, key=lambda arm: len(wanted(arm)), default=None)


def _budget(experiment: Experiment, panel: Panel, sections: Sequence[Section]) -> int | None:
    """Return the budget that all of the panel's arms we have runs of share; None if there is none.

    Of several the one the experiment has at any scale, or else the largest.
    """
    from hadamard.experiments.paper import SCALES

    budgets: dict[str, set[int]] = {}
    for section in sections:
        for variant in section.variants:
            arm = _arm(panel, variant)
            if arm is not None:
                budgets.setdefault(arm.label, set()).add(variant.steps)
    if not budgets:
        return None
    shared = set.intersection(*budgets.values())
    place = experiment.panels.index(panel)
    planned = shared & {experiment.at(scale)[place].steps for scale in SCALES}
    return max(planned or shared, default=None)


def _ground(sections: Sequence[Section], steps: int) -> _Ground:
    """Put the runs of one budget together, and say which of an algorithm's runs are not in it."""
    fair = [
        dataclasses.replace(section, variants=variants)
        for section in sections
        if (variants := [variant for variant in section.variants if variant.steps == steps])
    ]
    combined = combine(fair, least=1)
    together = combined.found[0] if combined.found else None
    left_out = [*combined.refused, *(together.left_out if together is not None else ())]
    runs = [run for section in sections for run in section.runs]
    others = sorted({run.steps for run in runs} - {steps})
    if others:
        left_out.append(f"Runs of {' or '.join(f'{n:,}' for n in others)} steps are left out.")
    unfinished = sum(run.steps == steps and not run.finished for run in runs)
    if unfinished:
        verb = "is" if unfinished == 1 else "are"
        left_out.append(f"{counted(unfinished, 'unfinished run')} {verb} left out.")
    return _Ground(steps, fair, together, left_out)


def _labels(panel: Panel, sections: Sequence[Section]) -> dict[str, str]:
    """Return our label of each of the panel's arms that we have runs of."""
    found: dict[str, str] = {}
    for section in sections:
        for variant in section.variants:
            arm = _arm(panel, variant)
            if arm is not None:
                found.setdefault(arm.label, variant.label)
    return found


def _row(experiment: Experiment, panel: Panel, stated: Stated, ground: _Ground) -> _Row | None:
    labels = _labels(panel, ground.sections)
    label = labels.get(stated.label)
    if label is None or not ground.tasks:
        return None

    def row(ours: Estimate, unit: str) -> _Row:
        return _Row(experiment, panel, stated, label, ours, unit, ground.steps)

    aggregate = panel.aggregations[0]
    if stated.measure in _MEASURED:
        values = _finals(ground, label, stated.measure)
        return row(_estimate(values, "mean"), f"mean of tasks{_partly(values, ground)}")
    one = ground.together
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
        return row(_estimate(scores[label], aggregate), unit)
    if stated.measure == "time":
        plain = labels.get(panel.baseline.label, "")
        slow, fast = (_finals(ground, name, "steps_per_second") for name in (label, plain))
        ratios = {task: fast[task].mean() / slow[task] for task in fast if task in slow}
        return row(_estimate(ratios, "mean"), f"times that of {plain}, mean of tasks")
    if stated.measure == "change":
        before = _before(panel, stated, labels, ground, label)
        if before is None:
            return None
        if "score" not in experiment.measures:
            old, new = (_finals(ground, name, "dormant_fraction") for name in (before, label))
            both = [task for task in old if task in new]
            unit = f"% against {before}, dormant neurons{_partly(both, ground)}"
        elif before in scores and label in scores:
            old, new = dict(scores[before]), dict(scores[label])
            unit = f"% against {before}, score"
        else:
            return None
        return row(_change(old, new, aggregate), unit)
    return None


def _before(
    panel: Panel, stated: Stated, labels: Mapping[str, str], ground: _Ground, label: str
) -> str | None:
    """Return our label of what the paper's change is measured against; None if it was not run."""
    if "over tanh" not in stated.unit and "without HR" not in stated.unit:
        return labels.get(panel.baseline.label)
    for section in ground.sections:
        for variant in section.variants:
            plain = section.without_layer(variant)
            if variant.label == label and plain is not None:
                return plain.label
    return None


def _finals(ground: _Ground, label: str, measure: str) -> dict[str, FloatArray]:
    """Return a measure of a label at the end of its finished runs, on the common tasks."""
    found = {}
    for section in ground.sections:
        for variant in section.variants:
            values = finite(variant.finals(measure))
            if variant.label == label and section.env in ground.tasks and values.size:
                found[section.env] = values
    return found


def _partly(measured: Collection[str], ground: _Ground) -> str:
    """Say on how many of the common tasks there is a measure, if not on all or none."""
    count, of = len(measured), len(ground.tasks)
    return f", on {count} of {of}" if 0 < count < of else ""


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
    measures = {key: MEASURES[key].name for key in _MEASURED}
    shown = {
        "in the paper": [row.stated.where for row in rows],
        "algorithm": [row.panel.algorithm for row in rows],
        "variant": [row.stated.label for row in rows],
        "measure": [measures.get(row.stated.measure, row.stated.measure) for row in rows],
        "paper": [f"{row.stated.value:g} {row.stated.unit}" for row in rows],
        "ours": [told(row.ours) for row in rows],
        "ours is": [f"{row.unit}{_steps(row, rows)}" for row in rows],
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
        "ours_steps": [row.steps for row in rows],
    }
    return Table("paper", "The paper's numbers beside ours, with 95 % intervals", shown, data)


def _steps(row: _Row, rows: Sequence[_Row]) -> str:
    """Name the budget of a number, if others of its algorithm have another."""
    budgets = {other.steps for other in rows if other.panel.algorithm == row.panel.algorithm}
    return f", {row.steps:,} steps" if len(budgets) > 1 else ""


def _protocol(panel: Panel, ground: _Ground) -> str:
    """Say what was run for the two columns, whether it was the same, and what is left out."""
    theirs = f"{_tasks(panel.tasks)}, {panel.steps:,} steps, {panel.seeds} seeds"
    ours = f"{_tasks(ground.tasks)}, {ground.steps:,} steps, {_seeds(ground)}"
    same = {task.lower() for task in panel.tasks} == {task.lower() for task in ground.tasks}
    verdict = (
        "The tasks and the budget are the paper's."
        if same and ground.steps == panel.steps
        else "That is another protocol: signs and orders may be compared, the numbers may not."
    )
    told = f"{algorithm_name(panel.algorithm)}: the paper has {theirs}; here it is {ours}."
    return " ".join([told, verdict, *ground.left_out])


def _tasks(tasks: Sequence[str]) -> str:
    suites = dict.fromkeys(task.partition("/")[0] for task in tasks)
    return f"{len(tasks)} task{'s' if len(tasks) > 1 else ''} of {' and '.join(suites)}"


def _seeds(ground: _Ground) -> str:
    """Count the finished runs that the numbers are made of, task by task and variant by variant."""
    compared = ground.together.scores if ground.together is not None else None
    counts = [
        len(variant.finished)
        for section in ground.sections
        for variant in section.variants
        if section.env in ground.tasks and (compared is None or variant.label in compared)
    ]
    return f"{spanned(counts)} seed{'' if max(counts) == 1 else 's'}"
