"""Which packed runs back which of the paper's figures, tables and claims.

``results/`` has a folder for each scale. In it, a panel's runs may have several budgets: parts of a
campaign with ``--share`` or ``--until``, and trials. The budget that most steps were trained with
is the one that is shown and judged. So new runs appear by being there, and nothing names them.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hadamard.core.run import RunError
from hadamard.experiments.paper import EXPERIMENTS, SCALES, Claim, Experiment, Panel, Stated
from hadamard.experiments.selection import select
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import gather
from hadamard.report.statistics.panel import PanelRuns

FEWEST_TASKS = 2
"""An arm that shares fewer tasks with the others is left out of a figure."""


@dataclass(frozen=True, eq=False)
class Backed:
    """A figure or table at a scale, and the runs it is drawn from."""

    experiment: Experiment
    scale: str
    panels: Mapping[str, PanelRuns]
    """By algorithm."""

    @property
    def enough(self) -> bool:
        """Whether a figure has something to show: two arms to compare, in most of its panels."""
        shown = [
            len(data.shown_labels) >= min(2, len(data.panel.arms)) and bool(data.tasks)
            for data in self.panels.values()
        ]
        return 2 * sum(shown) > len(shown)

    @property
    def scale_in_words(self) -> str:
        """The scale, and what is shorter than its budget."""
        shorter = [
            f"{algorithm_name(algorithm)} with {100 * data.panel.share:.4g} % of its budget"
            for algorithm, data in self.panels.items()
            if data.tasks and data.panel.share < 1
        ]
        return ", ".join([self.scale, *shorter])

    def runs(self, algorithm: str) -> list[RunData]:
        """Return the complete runs of an algorithm; none if it has no part in it."""
        data = self.panels.get(algorithm)
        by_task = [] if data is None or not data.tasks else data.complete.values()
        return [run for tasks in by_task for runs in tasks.values() for run in runs]

    def commands(self) -> list[str]:
        """Return the commands that train these runs: one for each budget and choice of tasks."""
        with_runs = [algorithm for algorithm, data in self.panels.items() if data.tasks]
        return list(dict.fromkeys(self.command(algorithm) for algorithm in with_runs))

    def command(self, algorithm: str) -> str:
        """Return the command that trains the runs of an algorithm."""
        data = self.panels[algorithm]
        whole = next(p for p in self.experiment.panels_at(self.scale) if p.algorithm == algorithm)
        words = ["hadamard", "reproduce", self.experiment.name, "--scale", self.scale]
        if len(data.tasks) < len(whole.tasks):
            words += ["--tasks", ",".join(data.tasks)]
        if data.seeds()[1] < whole.seeds:
            words += ["--seeds", str(data.seeds()[1])]
        if data.panel.share < 1:
            words += ["--share", f"{data.panel.share:.4g}"]
        if data.panel.until:
            words += ["--until", str(data.panel.until)]
        return shlex.join(words)


@dataclass(frozen=True)
class PaperClaim:
    """A sentence or a number of the paper, with all the places that it stands in."""

    experiment: Experiment
    """The first figure or table that declares it."""
    claim: Claim | Stated
    places: tuple[str, ...]

    @property
    def panel(self) -> Panel:
        """Its panel at the paper's scale."""
        return _panel(self.experiment, self.claim.algorithm)


def claims() -> list[PaperClaim]:
    """Return every claim of the paper once, in the order of the figures that declare them."""
    found: dict[tuple[object, ...], PaperClaim] = {}
    for experiment in EXPERIMENTS.values():
        declared: list[Claim | Stated] = [*experiment.claims, *experiment.stated]
        for claim in declared:
            panel = _panel(experiment, claim.algorithm)
            key = (_compared(claim), panel.tasks, panel.steps, panel.normalization)
            if key in found:
                places = dict.fromkeys((*found[key].places, claim.where))
                found[key] = dataclasses.replace(found[key], places=tuple(places))
            else:
                found[key] = PaperClaim(experiment, claim, (claim.where,))
    return list(found.values())


def read(results: Path) -> dict[str, list[RunData]]:
    """Read the packed runs of every scale that has some, the paper's scale first.

    What cannot be read is an error.
    """
    by_scale = {}
    for scale in reversed(SCALES):
        if (results / scale).is_dir():
            runs, troubles = gather([results / scale])
            if troubles:
                raise RunError(troubles[0])
            by_scale[scale] = runs
    if not by_scale:
        raise RunError(f"{results} has no folder of a scale ({', '.join(SCALES)}) with runs in it")
    return by_scale


def every_entry(runs: Mapping[str, Sequence[RunData]]) -> list[Backed]:
    """Return every figure and table at every scale that has runs."""
    every = EXPERIMENTS.values()
    return [backed(experiment, scale, runs[scale]) for scale in runs for experiment in every]


def backed(experiment: Experiment, scale: str, runs: Sequence[RunData]) -> Backed:
    """Return a figure or table with the runs that back it at a scale."""
    panels = {}
    for panel in experiment.panels:
        alone = dataclasses.replace(experiment, panels=(panel,))
        panels[panel.algorithm] = _panel_runs(alone, scale, runs)
    return Backed(experiment, scale, panels)


def _panel_runs(experiment: Experiment, scale: str, runs: Sequence[RunData]) -> PanelRuns:
    """Return the runs of an experiment's only panel, of the budget with the most steps trained."""
    (panel,) = experiment.panels_at(scale)
    of_panel = [run for run in runs if run.algorithm == panel.algorithm and run.env in panel.tasks]
    choices = [
        _selected(experiment, scale, of_panel, steps / panel.steps)
        for steps in sorted({run.steps for run in of_panel}, reverse=True)
        if steps <= panel.steps
    ]
    if not choices:
        return _selected(experiment, scale, [], 1.0)
    return max(choices, key=lambda data: sum(min(run.reached, data.end) for run in _runs(data)))


def _selected(
    experiment: Experiment, scale: str, runs: Sequence[RunData], share: float
) -> PanelRuns:
    """Select the runs of one budget, to the step that most of them reached."""
    (data,) = select(experiment, runs, scale, share=share).values()
    panel = data.panel
    ends = Counter(min(run.horizon, panel.steps) for run in _runs(data))
    end = max(ends, key=lambda step: (ends[step], step), default=panel.steps)
    stop = end if end < panel.steps else 0
    data = dataclasses.replace(data, until=end, panel=dataclasses.replace(panel, until=stop))
    with_runs = [label for label in data.complete if label not in _yardstick(panel)]
    shared = data.of_arms(with_runs).panel.tasks
    if len(shared) < min(FEWEST_TASKS, len(panel.tasks)) or shared == panel.tasks:
        return data
    on_shared = {
        label: {task: of for task, of in by_task.items() if task in shared}
        for label, by_task in data.runs.items()
    }
    shorter = dataclasses.replace(data.panel, tasks=shared)
    return dataclasses.replace(data, panel=shorter, runs=on_shared)


def _yardstick(panel: Panel) -> set[str]:
    return set() if panel.yardstick is None else {panel.yardstick.label}


def _runs(data: PanelRuns) -> list[RunData]:
    return [run for by_task in data.runs.values() for runs in by_task.values() for run in runs]


def _panel(experiment: Experiment, algorithm: str) -> Panel:
    return next(panel for panel in experiment.panels if panel.algorithm == algorithm)


def _compared(claim: Claim | Stated) -> tuple[object, ...]:
    """Return what a claim is about, whatever its words."""
    against = None if claim.against is None else claim.against.label
    shared = (claim.algorithm, claim.arm.label, against, claim.measure)
    if isinstance(claim, Stated):
        return ("number", *shared, claim.value)
    return (claim.kind, *shared, claim.by, claim.since, claim.theory)
