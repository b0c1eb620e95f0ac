"""The runs of one panel of an experiment: which of them can be compared, and their numbers.

A panel is one algorithm's arms on some tasks. Which runs belong to which arm is settled before
(`experiments.selection`); here they are put on one scale and on one axis of steps.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.data.runs import FloatArray, RunData, Series
from hadamard.report.measures import MEASURES
from hadamard.report.statistics import estimates
from hadamard.report.statistics.estimates import Band, Estimate
from hadamard.report.statistics.normalise import Scale, baseline_scale, normalise

if TYPE_CHECKING:
    from hadamard.experiments.paper import Panel

CURVE_POINTS = 100
"""Places along an aggregated curve, at most."""
CURVE_RESAMPLES = 300
SCORE = "score"
OWN_SCALE = "baseline_min_max"

ByTask = dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class PanelRuns:
    """The runs that were found of a panel, and its numbers up to a step."""

    panel: Panel
    """At the scale that is drawn."""
    until: int
    """The last step that counts: the whole budget, or less of it."""
    runs: Mapping[str, Mapping[str, Sequence[RunData]]]
    """By arm's label and task, ordered by seed."""
    remarks: Sequence[str] = ()
    """What was found and not used, in sentences."""

    @functools.cached_property
    def end(self) -> int:
        """The step that numbers are taken at: `until`, or how far all came if none came so far."""
        reached = [run.reached for run in self._all()]
        if not reached or max(reached) >= self.until:
            return self.until
        return min(reached)

    @property
    def budget_words(self) -> str:
        """How much of the training is shown.

        Part of it is "to 2 M of 10 M steps".
        """
        whole = self.panel.steps
        if self.end >= whole:
            return f"{steps_words(whole)} steps"
        return f"to {steps_words(self.end)} of {steps_words(whole)} steps"

    def _all(self) -> list[RunData]:
        return [run for tasks in self.runs.values() for of in tasks.values() for run in of]

    @functools.cached_property
    def complete(self) -> dict[str, dict[str, list[RunData]]]:
        """The runs that came to the end, without arms and tasks that have none."""
        found: dict[str, dict[str, list[RunData]]] = {}
        for label, tasks in self.runs.items():
            for task, runs in tasks.items():
                if whole := [run for run in runs if run.reached >= self.end]:
                    found.setdefault(label, {})[task] = whole
        return found

    @functools.cached_property
    def labels(self) -> list[str]:
        """The arms that are shown: those with runs on at least half as many tasks as any has."""
        most = max(map(len, self.complete.values()), default=0)
        order = [arm.label for arm in self.panel.trained]
        return [n for n in order if 2 * len(self.complete.get(n, {})) >= max(1, most)]

    @property
    def shown(self) -> list[str]:
        """The arms that are compared: without one that is only run for the normalisation."""
        own = {arm.label for arm in self.panel.arms}
        return [label for label in self.labels if label in own]

    @functools.cached_property
    def tasks(self) -> list[str]:
        """The tasks on which every shown arm has complete runs."""
        return [
            task
            for task in self.panel.tasks
            if self.shown and all(task in self.complete[label] for label in self.shown)
        ]

    @functools.cached_property
    def scales(self) -> dict[str, Scale]:
        """The yardstick's lowest and highest score on each task, where scores are so normalised."""
        if self.panel.normalisation != OWN_SCALE:
            return {}
        yardstick = (self.panel.yardstick or self.panel.baseline).label
        found = {}
        for task in self.tasks:
            curves = [
                _upto(run.score_series(), self.end).values
                for run in self.complete.get(yardstick, {}).get(task, [])
            ]
            try:
                found[task] = baseline_scale(curves, task)
            except ValueError:
                continue  # `faults` says so
        return found

    def tasks_with(self, measure: str) -> list[str]:
        """The tasks on which every shown arm has the measure."""
        return list(next(iter(self.finals(measure).values()), {}))

    def at(self, measure: str, step: float) -> dict[str, ByTask]:
        """Return a measure at a step: by arm and task, one number a complete run."""
        found: dict[str, ByTask] = {label: {} for label in self.shown}
        for task in self.tasks:
            by_arm = {}
            for label in self.shown:
                runs = self.complete[label][task]
                values = np.array([value_at(run, measure, step) for run in runs])
                by_arm[label] = self._scaled(values[np.isfinite(values)], measure, task)
            if all(values is not None and values.size for values in by_arm.values()):
                for label, values in by_arm.items():
                    assert values is not None
                    found[label][task] = values
        return found

    def finals(self, measure: str) -> dict[str, ByTask]:
        """Return a measure at the end, see `at`."""
        if measure not in self._known:
            self._known[measure] = self.at(measure, self.end)
        return self._known[measure]

    @functools.cached_property
    def _known(self) -> dict[str, dict[str, ByTask]]:
        return {}

    def _scaled(self, values: FloatArray, measure: str, task: str) -> FloatArray | None:
        if measure != SCORE:
            return values
        if self.panel.normalisation == OWN_SCALE and task not in self.scales:
            return None
        return normalise(values, task, self.panel.normalisation, self.scales)

    def steps(self, measure: str, tasks: Sequence[str]) -> FloatArray:
        """Return the places along training at which curves of a measure have values."""
        places = [
            _upto(_series(run, measure), self.end).steps
            for label in self.shown
            for task in tasks
            for run in self.complete[label][task]
        ]
        steps = np.unique(np.concatenate(places)) if places else np.empty(0)
        kept = np.linspace(0, len(steps) - 1, min(len(steps), CURVE_POINTS)).round()
        return np.asarray(steps[kept.astype(np.int64)], dtype=np.float64)

    def curves(self, measure: str) -> tuple[FloatArray, dict[str, ByTask]]:
        """Return steps, and a measure over training by arm and task, each (runs, steps)."""
        tasks = self.tasks_with(measure)
        steps = self.steps(measure, tasks)
        found: dict[str, ByTask] = {label: {} for label in self.shown}
        for label in self.shown:
            for task in tasks:
                drawn = [_series(run, measure).latest(steps) for run in self.complete[label][task]]
                scaled = self._scaled(np.array(drawn), measure, task)
                assert scaled is not None
                found[label][task] = scaled
        return steps, found

    def aggregations(self, measure: str) -> tuple[str, ...]:
        """How a measure is aggregated over tasks: the first is drawn, all are in the table."""
        return self.panel.aggregations if measure == SCORE else self.panel.health_aggregations

    def estimate(self, measure: str, label: str, aggregation: str) -> Estimate:
        """Return an arm's aggregate at the end, with an interval over seeds."""
        values = self.finals(measure)[label]
        if not values:
            return Estimate(np.nan, np.nan, np.nan)
        return estimates.estimate(values, aggregation, rng=generator())

    def band(
        self, measure: str, labels: Sequence[str], shading: str
    ) -> tuple[FloatArray, dict[str, Band]]:
        """Return steps, and each arm's aggregate over training with what is shaded around it."""
        steps, curves = self.curves(measure)
        aggregation = self.aggregations(measure)[0]
        found = {}
        for label in labels:
            if not curves.get(label):
                continue
            if shading == "interval":
                found[label] = estimates.aggregate_curve(
                    curves[label], aggregation, rng=generator(), resamples=CURVE_RESAMPLES
                )
            else:
                found[label] = _spread_of_seeds(curves[label], aggregation, shading)
        return steps, found

    def faults(self, measures: Sequence[str] = (SCORE,)) -> list[str]:
        """Say what is missing: arms, tasks, seeds, a yardstick, health."""
        panel, told = self.panel, list(self.remarks)
        missing = [arm.label for arm in panel.arms if arm.label not in self.labels]
        if missing:
            told.append(f"Drawn without {', '.join(missing)}: no complete runs.")
        if absent := [task for task in panel.tasks if task not in self.tasks]:
            several = f"{len(absent)} of {len(panel.tasks)} tasks"
            which = ", ".join(absent) if len(absent) <= 6 else several
            told.append(f"Drawn without {which}: not every arm has complete runs there.")
        for measure in measures:
            lost = [task for task in self.tasks if task not in self.tasks_with(measure)]
            if lost and measure == SCORE:
                yardstick = (panel.yardstick or panel.baseline).label
                told.append(
                    f"No normalised score on {', '.join(lost)}: {yardstick} has no lowest and "
                    "highest score there to normalise by."
                )
            elif lost:
                name = MEASURES[measure].name
                told.append(f"No {name} on {', '.join(lost)}: a run is without health.")
        told += self._seeds_words()
        unfinished = sum(run.reached < self.end for run in self._all())
        if unfinished:
            told.append(
                f"{unfinished} unfinished run{'s are' if unfinished > 1 else ' is'} left out."
            )
        if self.end < self.until:
            told.append(
                f"No run has come to {steps_words(self.until)} steps: all are drawn to "
                f"{steps_words(self.end)}, as far as every one of them came."
            )
        return told

    def seeds(self) -> tuple[int, int]:
        """Return the fewest and the most runs of any shown arm on any task."""
        counts = [len(self.complete[label][task]) for label in self.shown for task in self.tasks]
        return (min(counts), max(counts)) if counts else (0, 0)

    def _seeds_words(self) -> list[str]:
        few, most = self.seeds()
        if not most:
            return []
        if few < most:
            return [f"Seeds are unequal: {few} to {most} runs of an arm on a task."]
        if few < self.panel.seeds:
            return [f"{few} of {self.panel.seeds} seeds."]
        return []


def _series(run: RunData, measure: str) -> Series:
    """Return a measure of a run over training."""
    if measure == SCORE:
        return run.score_series()
    if measure == "dormant_excess":
        live, dormant = run.health["live_contribution"], run.health["dormant_contribution"]
        with np.errstate(divide="ignore", invalid="ignore"):
            return Series(run.health_steps, (dormant - live) / live).finite()
    return Series(run.health_steps, run.health[measure]).finite()


def value_at(run: RunData, measure: str, step: float) -> float:
    """Return a measure of a run as it stood at a step."""
    if measure == "steps_per_second":
        return run.steps_per_second
    if measure == SCORE and run.finished and run.horizon <= step:
        return run.final("score")  # exact, where the series is of places along the budget
    series = _upto(_series(run, measure), step)
    return float(series.values[-1]) if series.values.size else float("nan")


def _upto(series: Series, step: float) -> Series:
    kept = series.steps <= step
    return Series(series.steps[kept], series.values[kept])


def _spread_of_seeds(curves: Mapping[str, FloatArray], aggregation: str, shading: str) -> Band:
    """Aggregate each seed over tasks; return their mean and its standard deviation or error."""
    count = min(len(values) for values in curves.values())
    per_seed = np.array(
        [
            estimates.aggregate_curve(
                {task: values[seed : seed + 1] for task, values in curves.items()},
                aggregation,
                rng=generator(),
                resamples=1,
            ).value
            for seed in range(count)
        ]
    )
    return seed_band(per_seed, shading)


def seed_band(values: FloatArray, shading: str) -> Band:
    """Return the mean over seeds of (seeds, steps), and what is shaded around it.

    Steps at which a seed has no value have none.

    Examples:
        >>> band = seed_band(np.array([[1.0], [3.0]]), "deviation")
        >>> float(band.value[0]), round(float(band.high[0]), 2)
        (2.0, 3.41)
    """
    if shading == "interval":
        return estimates.mean_curve(values)
    mean = values.mean(axis=0)
    if len(values) < 2:
        none = np.full_like(mean, np.nan)
        return Band(mean, none, none)
    half = values.std(axis=0, ddof=1)
    if shading == "error":
        half = half / np.sqrt(len(values))
    return Band(mean, mean - half, mean + half)


def generator() -> np.random.Generator:
    """Return a generator that starts the same each time: a figure does not change by itself."""
    return np.random.default_rng(0)


def steps_words(steps: float) -> str:
    """Write a number of steps.

    Examples:
        >>> steps_words(2_500_000), steps_words(300_000), steps_words(2_048), steps_words(250)
        ('2.5 M', '300 k', '2,048', '250')
    """
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and 100 * steps % size == 0:
            return f"{steps / size:g} {letter}"
    return f"{steps:,.0f}"
