"""Training runs as a report needs them: labelled, grouped by variant, on common steps."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hadamard.core.config import flattened
from hadamard.core.run import Run, RunError
from hadamard.report.data import rows
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.data.labels import algorithm_name, labelled, order
from hadamard.report.data.labels import changed as changed
from hadamard.report.statistics.normalise import final_mean

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

WINDOW = 100
"""Episodes a score is the mean of."""
GREEDY_SHARE = 0.1
"""The last part of the budget whose greedy games, played alongside, make the greedy score."""
POINTS = 100
"""Places along the budget at which a learning curve is evaluated."""

HEALTH = ("dormant_fraction", "effective_rank", "full_rank", "hidden_bias_share")
PARTS = ("live_contribution", "dormant_contribution", "bias_contribution")

_NEEDED = ("env", "seed", "net.layer", "net.activation", "net.norm", "train.steps", "redo.enabled")


class Series(NamedTuple):
    """Numbers by step, in the order of the steps."""

    steps: IntArray
    values: FloatArray

    def smoothed(self, at: npt.ArrayLike) -> FloatArray:
        """Return, at each step, the mean of the last 100 values up to it.

        Of all values so far while there are fewer; NaN before the first.
        """
        last = np.searchsorted(self.steps, at, side="right")
        first = np.maximum(last - WINDOW, 0)
        sums = np.concatenate([[0.0], np.cumsum(self.values)])
        means = np.full(last.shape, np.nan)
        np.divide(sums[last] - sums[first], last - first, out=means, where=last > 0)
        return means

    def latest(self, at: npt.ArrayLike) -> FloatArray:
        """Return, at each step, the last value up to it; NaN before the first."""
        last = np.searchsorted(self.steps, at, side="right")
        return np.concatenate([[np.nan], self.values])[last]

    def by_step(self) -> Series:
        """Return one value a step: the mean of those at that step."""
        steps, first, counts = np.unique(self.steps, return_index=True, return_counts=True)
        sums = np.add.reduceat(self.values, first) if steps.size else np.empty(0)
        return Series(steps, sums / counts)

    def finite(self) -> Series:
        """Return the series without what is not a finite number."""
        sound = np.isfinite(self.values)
        return Series(self.steps[sound], self.values[sound])


class Snapshot(NamedTuple):
    """The densities of a few neurons of the representation at one step."""

    step: int
    grid: KdeGrid


@dataclass(frozen=True, eq=False)
class RunData:
    """What a report reads from one run."""

    path: Path
    label: str
    """The variant in words, such as "tanh + HR"; runs of equal label differ in the seed only."""
    algorithm: str
    spec: Mapping[str, Any]
    """All settings: ``{"net.layer": "hadamard", ...}``."""
    versions: Mapping[str, str]
    commit: str | None
    finished: bool
    reached: int
    """How far the run came; a finished one at least to its budget."""
    episodes: Series
    """Scores of the training episodes."""
    greedy: Series
    """Scores of the greedy episodes played alongside."""
    lost_episodes: int
    """Training episodes left out because their score is not a finite number."""
    health_steps: IntArray
    health: Mapping[str, FloatArray]
    """Measures of the representation (the last diagnosed layer) at ``health_steps``."""
    threshold: float | None
    delta: float | None
    steps_per_second: float
    seconds: float = float("nan")
    """Wall time so far."""
    machine: str = ""
    """What it ran on, as far as it is recorded."""
    troubles: Sequence[str] = ()
    """What of it could not be read."""

    @functools.cached_property
    def snapshots(self) -> list[Snapshot]:
        """After a tenth of the budget and the last, as in the paper; or the last, or none."""
        return _snapshots(self.path / "kde.jsonl", 0.1 * self.steps)

    @property
    def evaluated(self) -> bool:
        """Whether its scores are those of evaluations, not of training episodes."""
        return bool(self.spec.get("train.eval_every"))

    @functools.cached_property
    def evaluations(self) -> Series:
        """The mean score of each evaluation."""
        return self.greedy.by_step()

    @property
    def env(self) -> str:
        """The environment, as suite/task."""
        return str(self.spec["env"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.spec["seed"])

    @property
    def steps(self) -> int:
        """The budget."""
        return int(self.spec["train.steps"])

    def final(self, measure: str) -> float:
        """Return a measure as it stands at the end of what there is; NaN if it is missing.

        The score is the mean of the last 100 training episodes; of a run with evaluations that
        of the evaluations in the last 5 % of training, or of the last one.

        The greedy score is the mean of the last evaluation. Of a run without evaluations it is
        that of the games played alongside that ended in the last 10 % of the budget: the last 100
        of the few environments that play them would reach far back into training.
        """
        if measure == "score" and self.evaluated:
            steps, means = self.evaluations
            late = final_mean(steps, means, self.steps)
            return float(means[-1]) if means.size and np.isnan(late) else late
        if measure == "score":
            values = self.episodes.values[-WINDOW:]
            return float(values.mean()) if values.size else float("nan")
        if measure == "greedy" and not self.evaluated:
            return final_mean(*self.greedy, self.steps, GREEDY_SHARE)
        if measure == "steps_per_second":
            return self.steps_per_second
        values = self.evaluations.values if measure == "greedy" else self.health[measure]
        return float(values[-1]) if values.size else float("nan")


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
    def evaluated(self) -> bool:
        """Whether its scores are those of evaluations."""
        return self.runs[0].evaluated

    def finals(self, measure: str) -> FloatArray:
        """Return a measure at the end of every finished run, NaN where it is missing."""
        return np.array([run.final(measure) for run in self.finished], dtype=np.float64)

    def score_curve(self, steps: FloatArray) -> FloatArray:
        """Return the scores over training, (seeds, steps); NaN where a run has not been.

        Smoothed training scores, or the latest evaluation's mean.
        """
        curves = [
            run.evaluations.latest(steps) if run.evaluated else run.episodes.smoothed(steps)
            for run in self.runs
        ]
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
    """What is compared with each other: the variants of one algorithm on one environment."""

    algorithm: str
    env: str
    variants: Sequence[Variant]
    """Ordinary layers first, so that a baseline comes before what it is the baseline of."""

    @property
    def name(self) -> str:
        """Algorithm and environment in words."""
        return f"{algorithm_name(self.algorithm)} on {self.env}"

    @property
    def runs(self) -> list[RunData]:
        """All runs, variant by variant."""
        return [run for variant in self.variants for run in variant.runs]

    def grid(self) -> FloatArray:
        """Return the steps at which learning curves are evaluated.

        Those of the evaluations, if all runs have them.
        """
        steps = [run.evaluations.steps for run in self.runs if run.evaluated]
        if len(steps) == len(self.runs) and any(at.size for at in steps):
            return np.unique(np.concatenate(steps)).astype(np.float64)
        return np.linspace(0, max(run.steps for run in self.runs), POINTS + 1)[1:]

    def baseline(self, variant: Variant) -> Variant | None:
        """Return what a variant is compared with; None for the section's first.

        The ordinary layer with the same activation; where there is none, the section's first
        variant. Of another budget only where none of the same comes before it.
        """
        before = self.variants[: self.variants.index(variant)]
        fair = [other for other in before if other.steps == variant.steps] or before
        return _ordinary(fair, variant) or next(iter(fair), None)

    def without_layer(self, variant: Variant) -> Variant | None:
        """Return the ordinary layer with a variant's activation and budget; None if there is none.

        What a layer changes is told against this alone, where `baseline` has a last resort.
        """
        fair = [v for v in self.variants if v.steps == variant.steps and v is not variant]
        return _ordinary(fair, variant)


def _ordinary(among: Iterable[Variant], variant: Variant) -> Variant | None:
    """Return the variant with an ordinary layer and the same activation, the most alike of them."""
    spec = variant.runs[0].spec
    found = [
        other
        for other in among
        if other.runs[0].spec["net.activation"] == spec["net.activation"]
        and other.runs[0].spec["net.layer"] == "plain"
        and not other.runs[0].spec["redo.enabled"]
    ]
    return min(found, key=lambda other: len(changed(other.runs[0].spec, spec)), default=None)


class Gathered(NamedTuple):
    """Runs, and what is to be told about folders and rows that could not be used."""

    runs: list[RunData]
    troubles: list[str]


def load(paths: Iterable[str | os.PathLike[str]]) -> list[RunData]:
    """Read runs, each path being a run's folder or a folder with runs at any depth in it.

    Whatever cannot be read is an error.
    """
    runs, troubles = gather(paths)
    for trouble in (*troubles, *(trouble for run in runs for trouble in run.troubles)):
        raise RunError(trouble)
    return runs


def gather(paths: Iterable[str | os.PathLike[str]]) -> Gathered:
    """Read runs as `load` does, but go on past what cannot be read and tell of it.

    A folder without any run in it is still an error.
    """
    given = [Path(path) for path in paths]
    # A shell's * also finds the logs beside runs.
    searched = [path for path in given if not path.is_file()] or given
    folders = {folder.resolve(): folder for path in searched for folder in _folders(path)}
    runs, troubles = [], []
    for folder in folders.values():
        try:
            runs.append(_read(Run.open(folder)))
        except RunError as error:
            troubles.append(str(error))
    if not runs and troubles:
        raise RunError(troubles[0])
    runs, repeated = labelled(runs)
    return Gathered(runs, troubles + repeated)


def sections(runs: Sequence[RunData]) -> list[Section]:
    """Group runs by algorithm and environment, and inside by variant."""
    grouped: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in runs:
        grouped.setdefault((run.algorithm, run.env), {}).setdefault(run.label, []).append(run)
    found = []
    for (algorithm, env), variants in grouped.items():
        ordered = sorted(variants.items(), key=lambda item: order(item[1][0]))
        by_seed = [
            Variant(label, sorted(alike, key=lambda run: run.seed)) for label, alike in ordered
        ]
        found.append(Section(algorithm, env, by_seed))
    return found


def _folders(path: Path) -> list[Path]:
    if not path.exists():
        raise RunError(f"{path}: there is no such folder; give a run or a folder with runs in it")
    found = []
    for name, inside, files in os.walk(path):
        if "config.json" in files:
            found.append(Path(name))
            inside.clear()  # a run holds no runs
        inside.sort()
    if not found:
        raise RunError(
            f"{path} holds no run: nothing in it has a config.json. `hadamard train` writes runs"
        )
    return found


def _read(run: Run) -> RunData:
    config = run.config
    spec = flattened(config.get("spec") or {})
    if absent := [name for name in _NEEDED if name not in spec]:
        raise RunError(
            f"{run.path / 'config.json'} lacks spec.{absent[0]}: it is not the config of a "
            "training run, or of another version; leave the folder out"
        )
    episodes, troubles = _series(run, "episodes")
    greedy, more = _series(run, "eval")
    read, unread = rows.rows(run.path / "health.jsonl")
    health = [row for row in read if _has_layers(row)]
    troubles += more + unread
    summary = run.done
    steps = [*episodes.steps[-1:], *greedy.steps[-1:], *(row["step"] for row in health[-1:])]
    steps.append(rows.last_row(run.path / "train.jsonl").get("step", 0))
    if summary is not None:
        steps += [spec["train.steps"], summary.get("steps") or 0]
    measures = {
        # numpy turns None, the null of a value that is not finite or does not apply, into NaN.
        name: np.array([row["layers"][-1].get(name) for row in health], dtype=np.float64)
        for name in HEALTH + PARTS
    }
    speed, seconds = _speed(run, summary)
    return RunData(
        path=run.path,
        label="",
        algorithm=str(config.get("algorithm")),
        spec=spec,
        versions=config.get("versions") or {},
        commit=config.get("commit"),
        finished=summary is not None,
        reached=int(max(steps, default=0)),
        episodes=episodes.finite(),
        greedy=greedy.finite(),
        lost_episodes=int((~np.isfinite(episodes.values)).sum()),
        health_steps=np.array([row["step"] for row in health], dtype=np.int64),
        health=measures | _shares(measures),
        threshold=health[-1].get("threshold") if health else None,
        delta=health[-1].get("delta") if health else None,
        steps_per_second=speed,
        seconds=seconds,
        machine=str(config.get("machine") or spec.get("device") or ""),
        troubles=troubles,
    )


def _has_layers(row: Mapping[str, Any]) -> bool:
    layers = row.get("layers")
    return isinstance(layers, list) and bool(layers) and isinstance(layers[-1], dict)


def _series(run: Run, stream: str) -> tuple[Series, list[str]]:
    found, troubles = rows.columns(run.path / f"{stream}.jsonl", ("step", "score"))
    return Series(found["step"].astype(np.int64), found["score"]), troubles


def _shares(measures: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the parts of what the next layer receives as shares of the whole."""
    parts = np.array([measures[part] for part in PARTS])
    if np.isnan(parts[2]).all():
        parts[2] = np.where(np.isnan(parts[0]), np.nan, 0.0)  # a next layer without a bias
    total = parts.sum(axis=0)
    shares = np.divide(parts, total, out=np.where(np.isnan(parts), np.nan, 0.0), where=total > 0)
    return {
        part.replace("contribution", "share"): share
        for part, share in zip(PARTS, shares, strict=True)
    }


def _snapshots(path: Path, early: float) -> list[Snapshot]:
    last = rows.last_row(path)
    if not last:
        return []
    # The last layer of a snapshot is the representation.
    first = rows.first_row(
        path, lambda row: row.get("layer") == last.get("layer") and row.get("step", 0) >= early
    )
    first = first or last  # not so far yet
    found = []
    for row in (first, last) if first["step"] < last["step"] else (last,):
        try:
            snapshot = _snapshot(row)
        except (KeyError, TypeError, ValueError, IndexError):
            continue  # not written by this version
        if snapshot is not None:
            found.append(snapshot)
    return found


def _snapshot(row: Mapping[str, Any]) -> Snapshot | None:
    places = np.array(row["places"], dtype=np.float64)
    density = np.array(row["density"], dtype=np.float64)
    sound = np.isfinite(places).all(axis=1) & np.isfinite(density).all(axis=1)
    if not sound.any():
        return None
    grid = KdeGrid(
        neurons=np.array(row["neurons"], dtype=np.int64)[sound],
        places=places[sound],
        density=density[sound],
        dormant=np.array(row["dormant"], dtype=np.bool_)[sound],
        bounded=bool(row["bounded"]),
        title=str(row["title"]),
    )
    return Snapshot(int(row["step"]), grid)


def _speed(run: Run, summary: Mapping[str, Any] | None) -> tuple[float, float]:
    """Return steps a second and seconds; NaN where they are not known."""
    row = rows.last_row(run.path / "timing.jsonl")
    last = row if row.get("seconds") else summary or {}
    steps, seconds = last.get("step", last.get("steps")), last.get("seconds")
    if not steps or not seconds:
        return float("nan"), float("nan")
    return steps / seconds, float(seconds)
