"""The runs of one panel of an experiment: which of them can be compared, and their numbers.

A panel is the arms of one algorithm on some tasks. `experiments.selection` assigns runs to arms;
this module normalizes their scores and puts their curves on common steps.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.data.run_data import RunData
from hadamard.report.data.series import FloatArray
from hadamard.report.measures import MEASURES
from hadamard.report.statistics import estimates
from hadamard.report.statistics.estimates import Band, Estimate, report_generator
from hadamard.report.statistics.normalize import OWN_BASELINE, Scale, baseline_scale, normalize
from hadamard.report.statistics.run_values import SCORE, measure_series, value_at
from hadamard.report.statistics.shading import aggregated_seeds
from hadamard.report.statistics.task_scores import finite
from hadamard.text import counted, steps_words

if TYPE_CHECKING:
    from hadamard.experiments.paper import Panel

CURVE_POINTS = 100
"""The most points of an aggregated curve."""
CURVE_RESAMPLES = 300
LATE_START = 0.05
"""The share of the budget after which the beginning of a curve is worth a sentence."""

ValuesByTask = dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class PanelRuns:
    """The runs of a panel, and their numbers up to a step."""

    panel: Panel
    """The panel at the scale that is drawn."""
    until: int
    """The last step that counts: the whole budget, or less of it."""
    runs: Mapping[str, Mapping[str, Sequence[RunData]]]
    """The runs by the arm's label and by task, ordered by seed."""
    remarks: Sequence[str] = ()
    """Which runs were not used and why, in sentences."""

    @functools.cached_property
    def end(self) -> int:
        """The step at which numbers are taken.

        It is `until`; if no run reached that, it is the last step that all runs reached.
        """
        reached = [run.reached for run in self._all_runs()]
        if not reached or max(reached) >= self.until:
            return self.until
        return min(reached)

    @property
    def budget_words(self) -> str:
        """How much of the training is shown.

        "10 M steps", "to 2 M of 10 M steps", or "400 k steps (4 % of 10 M)" with ``--share``.
        """
        budget, share = self.panel.steps, self.panel.share
        words = f"{steps_words(budget)} steps"
        if self.end < budget:
            words = f"to {steps_words(self.end)} of {words}"
        if share < 1:
            words += f" ({100 * share:.3g} % of {steps_words(round(budget / share))})"
        return words

    def of_arms(self, labels: Sequence[str]) -> PanelRuns:
        """Return these arms alone, on all the tasks that they share, up to the same step."""
        panel = self.panel
        arms = [arm for arm in panel.arms if arm.label in labels]
        yardstick = panel.yardstick or panel.baseline
        needed = {yardstick.label, *(arm.label for arm in arms)}
        tasks = [
            task
            for task in panel.tasks
            if all(task in self.complete.get(arm.label, {}) for arm in arms)
        ]
        runs = {
            label: {task: by_task[task] for task in tasks if task in by_task}
            for label, by_task in self.complete.items()
            if label in needed
        }
        alone = panel.with_arms(
            *arms, tasks=tuple(tasks), yardstick=None if yardstick in arms else yardstick
        )
        return PanelRuns(alone, self.end, runs, self.remarks)

    def _all_runs(self) -> list[RunData]:
        return [run for tasks in self.runs.values() for runs in tasks.values() for run in runs]

    @functools.cached_property
    def complete(self) -> dict[str, dict[str, list[RunData]]]:
        """The runs that reached `end`, by arm and task; arms and tasks without any are left out."""
        complete: dict[str, dict[str, list[RunData]]] = {}
        for label, tasks in self.runs.items():
            for task, runs in tasks.items():
                if reached := [run for run in runs if run.reached >= self.end]:
                    complete.setdefault(label, {})[task] = reached
        return complete

    @functools.cached_property
    def labels(self) -> list[str]:
        """The arms with complete runs on at least half as many tasks as the arm with the most."""
        most = max(map(len, self.complete.values()), default=0)
        labels = [arm.label for arm in self.panel.trained]
        return [label for label in labels if 2 * len(self.complete.get(label, {})) >= max(1, most)]

    @property
    def shown_labels(self) -> list[str]:
        """The arms that are compared: `labels` without an arm that only serves normalization."""
        compared = {arm.label for arm in self.panel.arms}
        return [label for label in self.labels if label in compared]

    @functools.cached_property
    def tasks(self) -> list[str]:
        """The tasks on which every shown arm has complete runs."""
        return [
            task
            for task in self.panel.tasks
            if self.shown_labels
            and all(task in self.complete[label] for label in self.shown_labels)
        ]

    @functools.cached_property
    def scales(self) -> dict[str, Scale]:
        """The yardstick arm's lowest and highest score on each task, if scores need them."""
        if self.panel.normalization != OWN_BASELINE:
            return {}
        yardstick = (self.panel.yardstick or self.panel.baseline).label
        scales = {}
        for task in self.tasks:
            curves = [
                run.score_series().until(self.end).values
                for run in self.complete.get(yardstick, {}).get(task, [])
            ]
            try:
                scales[task] = baseline_scale(curves, task)
            except ValueError:
                continue  # `caveats` names the task
        return scales

    def tasks_with(self, measure: str) -> list[str]:
        """The tasks on which every shown arm has the measure."""
        return list(next(iter(self.finals(measure).values()), {}))

    def at(self, measure: str, step: float) -> dict[str, ValuesByTask]:
        """Return a measure at a step, by arm and task: one number per complete run.

        Tasks on which any arm has no value are left out.
        """
        by_arm: dict[str, ValuesByTask] = {label: {} for label in self.shown_labels}
        for task in self.tasks:
            on_task: dict[str, FloatArray] = {}
            for label in self.shown_labels:
                runs = self.complete[label][task]
                values = np.array([value_at(run, measure, step) for run in runs])
                normalized = self._normalized(finite(values), measure, task)
                if normalized is not None and normalized.size:
                    on_task[label] = normalized
            if len(on_task) == len(self.shown_labels):
                for label, normalized in on_task.items():
                    by_arm[label][task] = normalized
        return by_arm

    def finals(self, measure: str) -> dict[str, ValuesByTask]:
        """Return a measure at the end, see `at`."""
        if measure not in self._finals:
            self._finals[measure] = self.at(measure, self.end)
        return self._finals[measure]

    @functools.cached_property
    def _finals(self) -> dict[str, dict[str, ValuesByTask]]:
        return {}

    def _normalized(self, values: FloatArray, measure: str, task: str) -> FloatArray | None:
        if measure != SCORE:
            return values
        if self.panel.normalization == OWN_BASELINE and task not in self.scales:
            return None
        return normalize(values, task, self.panel.normalization, self.scales)

    def steps(self, measure: str, tasks: Sequence[str]) -> FloatArray:
        """Return the steps at which the curves of a measure have values, `CURVE_POINTS` at most."""
        steps_by_run = [
            measure_series(run, measure).until(self.end).steps
            for label in self.shown_labels
            for task in tasks
            for run in self.complete[label][task]
        ]
        steps = np.unique(np.concatenate(steps_by_run)) if steps_by_run else np.empty(0)
        chosen = np.linspace(0, len(steps) - 1, min(len(steps), CURVE_POINTS)).round()
        return np.asarray(steps[chosen.astype(np.int64)], dtype=np.float64)

    def curves(self, measure: str) -> tuple[FloatArray, dict[str, ValuesByTask]]:
        """Return steps, and a measure over training by arm and task, each (runs, steps)."""
        tasks = self.tasks_with(measure)
        steps = self.steps(measure, tasks)
        by_arm: dict[str, ValuesByTask] = {label: {} for label in self.shown_labels}
        for label in self.shown_labels:
            for task in tasks:
                curves = [
                    measure_series(run, measure).latest(steps) for run in self.complete[label][task]
                ]
                normalized = self._normalized(np.array(curves), measure, task)
                assert normalized is not None
                by_arm[label][task] = normalized
        return steps, by_arm

    def aggregations(self, measure: str) -> tuple[str, ...]:
        """Return the aggregates of a measure over tasks: figures show the first, tables all."""
        return self.panel.aggregations if measure == SCORE else self.panel.health_aggregations

    def estimate(self, measure: str, label: str, aggregation: str) -> Estimate:
        """Return an arm's aggregate at the end, with an interval over seeds."""
        values = self.finals(measure)[label]
        if not values:
            return Estimate(np.nan, np.nan, np.nan)
        return estimates.estimate(values, aggregation, rng=report_generator())

    def band(
        self, measure: str, labels: Sequence[str], shading: str
    ) -> tuple[FloatArray, dict[str, Band]]:
        """Return steps, and each arm's aggregate over training with its shading."""
        steps, curves = self.curves(measure)
        aggregation = self.aggregations(measure)[0]
        bands = {}
        for label in labels:
            if not curves.get(label):
                continue
            if shading == "interval":
                bands[label] = estimates.aggregate_curve(
                    curves[label], aggregation, rng=report_generator(), resamples=CURVE_RESAMPLES
                )
            else:
                bands[label] = aggregated_seeds(curves[label], aggregation, shading)
        return steps, bands

    def caveats(self, measures: Sequence[str] = (SCORE,)) -> list[str]:
        """Return sentences about what is missing: arms, tasks, seeds, normalization, health."""
        panel, caveats = self.panel, list(self.remarks)
        missing = [arm.label for arm in panel.arms if arm.label not in self.labels]
        if missing:
            caveats.append(f"Drawn without {', '.join(missing)}: no complete runs.")
        if absent := [task for task in panel.tasks if task not in self.tasks]:
            count = f"{len(absent)} of {len(panel.tasks)} tasks"
            names = ", ".join(absent) if len(absent) <= 6 else count
            caveats.append(f"Drawn without {names}: not every arm has complete runs there.")
        for measure in measures:
            lacking = [task for task in self.tasks if task not in self.tasks_with(measure)]
            if lacking and measure == SCORE:
                yardstick = (panel.yardstick or panel.baseline).label
                caveats.append(
                    f"No normalized score on {', '.join(lacking)}: {yardstick} has no lowest and "
                    "highest score there to normalize by."
                )
            elif lacking:
                name = MEASURES[measure].name
                caveats.append(f"No {name} on {', '.join(lacking)}: a run has no diagnosis.")
        caveats += self._missing_seeds()
        unfinished = sum(run.reached < self.end for run in self._all_runs())
        if unfinished:
            verb = "is" if unfinished == 1 else "are"
            caveats.append(f"{counted(unfinished, 'unfinished run')} {verb} left out.")
        if self.end < self.until:
            caveats.append(
                f"No run has reached {steps_words(self.until)} steps: all are drawn up to "
                f"{steps_words(self.end)}, which every run reached."
            )
        return caveats

    def late_start(self) -> str:
        """Return a sentence on where score curves of all tasks begin, if that is late.

        They begin where every task has a score: on a task of long episodes the first ends late.
        """
        first = {
            task: max(
                int(run.score_series().finite().steps[:1].sum())
                for label in self.shown_labels
                for run in self.complete[label][task]
            )
            for task in self.tasks
        }
        task = max(first, key=lambda name: first[name], default="")
        if not task or first[task] <= LATE_START * self.end:
            return ""
        return f"Curves begin at {first[task]:,} steps, with the first score on {task}."

    def seeds(self) -> tuple[int, int]:
        """Return the fewest and the most runs of any shown arm on any task."""
        counts = [
            len(self.complete[label][task]) for label in self.shown_labels for task in self.tasks
        ]
        return (min(counts), max(counts)) if counts else (0, 0)

    def _missing_seeds(self) -> list[str]:
        fewest, most = self.seeds()
        if not most:
            return []
        if fewest < most:
            return [f"Seeds are unequal: {fewest} to {most} runs per arm and task."]
        if fewest < self.panel.seeds:
            return [f"{fewest} of {self.panel.seeds} seeds."]
        return []
