"""Training runs as a report needs them: labeled, grouped by variant, on common steps."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hadamard.core import identity
from hadamard.core.identity import changed as changed
from hadamard.core.run import Run, RunError
from hadamard.report.data.fields import Fields, WrongField
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.data.labels import algorithm_name, labeled
from hadamard.report.data.packed import SUFFIX, read_packed
from hadamard.report.data.series import FloatArray as FloatArray
from hadamard.report.data.series import IntArray, Series, places
from hadamard.report.data.thin import (
    PLACES,
    Record,
    density_of,
    density_places,
    thinned,
    thinned_densities,
)
from hadamard.report.measures import PART_SHARES, PARTS, RECORDED, SCORES, ScoreKind

POINTS = 100
"""Places along the budget at which a learning curve is evaluated."""


class Snapshot(NamedTuple):
    """The densities of a few neurons of the representation at one step."""

    step: int
    grid: KdeGrid


@dataclass(frozen=True, eq=False)
class RunData:
    """What a report reads from one run, be it a folder or packed."""

    path: Path
    """The run's folder, or its packed file."""
    name: str
    """The name of its folder."""
    label: str
    """The variant in words, such as "tanh + HR"; runs of equal label differ in the seed only."""
    algorithm: str
    spec: Mapping[str, Any]
    """All settings but where the run was written: ``{"net.layer": "hadamard", ...}``."""
    versions: Mapping[str, str]
    commit: str | None
    protocol: int
    """The version of the protocol it was trained under: only equal ones compare."""
    machine: str
    """What it ran on, as far as it is recorded."""
    summary: Mapping[str, float] | None
    """The closing summary's numbers; None while the run is not finished."""
    reached: int
    """How far the run came; a finished one at least to its horizon."""
    scores: Mapping[ScoreKind, Series]
    """By kind, at a few places of the budget."""
    finals: Mapping[ScoreKind, float]
    """The final score of each kind, from all episodes; NaN where there is none."""
    episodes: int
    lost_episodes: int
    """Training episodes left out because their score is not a finite number."""
    health_steps: IntArray
    layers: Mapping[str, Mapping[str, FloatArray]]
    """Measures of every diagnosed layer at ``health_steps``, NaN where they are missing."""
    representation: str
    """The layer whose health is shown: the last diagnosed; "" if there is no diagnosis."""
    threshold: float | None
    delta: float | None
    steps_per_second: float
    seconds: float
    """Wall time so far."""
    troubles: Sequence[str]
    """What of it could not be read."""
    read_snapshots: Callable[[], list[Snapshot]]
    """Read a folder's densities; not before they are drawn, since that takes long."""

    @functools.cached_property
    def snapshots(self) -> list[Snapshot]:
        """After a tenth of the budget and the last, as in the paper; or the last, or none."""
        return self.read_snapshots()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary is not None

    @property
    def health(self) -> Mapping[str, FloatArray]:
        """Measures of the representation at ``health_steps``."""
        found = self.layers.get(self.representation)
        if found is None:
            none = np.full(self.health_steps.shape, np.nan)
            return dict.fromkeys((*RECORDED, *PART_SHARES), none)
        return found

    @property
    def score_kind(self) -> ScoreKind:
        """What the run is judged by: evaluations, else greedy games, else training episodes."""
        return next(kind for kind in SCORES if kind in self.scores)

    def score_series(self, kind: ScoreKind | None = None) -> Series:
        """Return the scores of a kind over training, of the kind it is judged by if None.

        Empty where the run has none of them.
        """
        none = Series(np.empty(0, np.int64), np.empty(0))
        return self.scores.get(kind or self.score_kind, none)

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
        """The budget, along which schedules run."""
        return int(self.spec["train.steps"])

    @property
    def horizon(self) -> int:
        """The step at which the run ends: its budget, unless it is stopped early."""
        return identity.horizon(self.spec)

    def final(self, measure: str) -> float:
        """Return a measure as it stands at the end of what there is; NaN if it is missing.

        ``score`` is of the kind the run is judged by, ``training_score``, ``greedy_score`` and
        ``evaluation_score`` are of theirs; what they are made of, `measures.SCORES` says.
        """
        if measure == "score":
            return self.finals[self.score_kind]
        if measure.endswith("_score"):
            finals = {f"{kind}_score": value for kind, value in self.finals.items()}
            return finals.get(measure, math.nan)
        if measure == "steps_per_second":
            return self.steps_per_second
        values = self.health[measure]
        return float(values[-1]) if values.size else math.nan


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
        """What its runs are judged by."""
        return self.runs[0].score_kind

    def finals(self, measure: str) -> FloatArray:
        """Return a measure at the end of every finished run, NaN where it is missing."""
        return np.array([run.final(measure) for run in self.finished], dtype=np.float64)

    def score_curve(self, steps: FloatArray) -> FloatArray:
        """Return the latest score at each step, (seeds, steps); NaN where a run has not been."""
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
        if all(run.score_kind == "evaluation" for run in self.runs):
            steps = np.unique(np.concatenate([run.score_series().steps for run in self.runs]))
            if steps.size:
                return steps.astype(np.float64)
        return np.linspace(0, max(run.steps for run in self.runs), POINTS + 1)[1:]

    def baseline(self, variant: Variant) -> Variant | None:
        """Return what a variant is compared with; None for the section's first.

        The ordinary layer with the same activation; where there is none, the section's first
        variant. Of another protocol or budget only where none of the same comes before it.
        """
        before = self.variants[: self.variants.index(variant)]
        alike = [other for other in before if other.protocol == variant.protocol] or before
        fair = [other for other in alike if other.steps == variant.steps] or alike
        return _ordinary(fair, variant) or next(iter(fair), None)

    def without_layer(self, variant: Variant) -> Variant | None:
        """Return the ordinary layer with a variant's activation, budget and protocol, or None.

        What a layer changes is told against this alone, where `baseline` has a last resort.
        """
        run_alike = (variant.steps, variant.protocol)
        fair = [v for v in self.variants if (v.steps, v.protocol) == run_alike and v is not variant]
        return _ordinary(fair, variant)


def incomparable(ours: Variant, theirs: Variant) -> str:
    """Say why the scores of two variants do not compare; empty if they do."""
    if ours.protocol != theirs.protocol:
        return "their versions of the training protocol differ"
    if ours.score_kind != theirs.score_kind:
        return "one is judged by other games than the other"
    return "the budgets differ" if ours.steps != theirs.steps else ""


def _ordinary(among: Iterable[Variant], variant: Variant) -> Variant | None:
    """Return the variant with an ordinary layer and the same activation, the most alike of them."""
    spec = variant.runs[0].spec
    found = [
        other
        for other in among
        if other.runs[0].spec["net.activation"] == spec["net.activation"]
        and identity.ordinary(other.runs[0].spec)
    ]
    return min(found, key=lambda other: len(changed(other.runs[0].spec, spec)), default=None)


class Gathered(NamedTuple):
    """Runs, and what is to be told about folders and rows that could not be used."""

    runs: list[RunData]
    troubles: list[str]


def load(paths: Iterable[str | os.PathLike[str]]) -> list[RunData]:
    """Read runs, each path being a run's folder, a packed run, or a folder with such in it.

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
    sources = run_paths(paths)
    runs, troubles = [], list(sources.troubles)
    for path in sources.paths:
        try:
            runs.append(read_run(path))
        except RunError as error:
            troubles.append(str(error))
    if not runs and troubles:
        raise RunError(troubles[0])
    runs, repeated = labeled(runs)
    return Gathered(runs, troubles + repeated)


class RunPaths(NamedTuple):
    """Where runs are: folders and packed files, and what was not followed."""

    paths: list[Path]
    troubles: list[str]


def run_paths(paths: Iterable[str | os.PathLike[str]]) -> RunPaths:
    """Find the runs in some paths, at any depth, each once."""
    given = [Path(path) for path in paths]
    # A shell's * also finds the logs beside runs.
    searched = [p for p in given if not p.is_file() or p.suffix == SUFFIX] or given
    found: dict[Path, Path] = {}
    troubles = []
    for path in searched:
        inside = list(_inside(path))
        for source in inside:
            if source.is_symlink() and source != path:
                troubles.append(f"{source} is a link, which is not followed: name its target")
            else:
                found.setdefault(source.resolve(), source)
        if not inside:
            raise RunError(
                f"{path} holds no run: nothing in it has a config.json, nor is it a packed run "
                f"({SUFFIX}). `hadamard train` writes runs"
            )
    return RunPaths(list(found.values()), troubles)


def _inside(path: Path) -> Iterator[Path]:
    """Find runs' folders and packed runs in a path, and the path if it is one."""
    if not path.exists():
        raise RunError(
            f"{path}: there is no such folder; give a run, a packed run or a folder with runs in it"
        )
    if path.is_file() and path.suffix == SUFFIX:
        yield path
    for name, folders, files in os.walk(path):
        if "config.json" in files:
            yield Path(name)
            folders.clear()  # a run holds no runs
        else:
            yield from (Path(name, file) for file in sorted(files) if file.endswith(SUFFIX))
        folders.sort()


def read_run(path: Path) -> RunData:
    """Read one run, without a label yet: a folder, or a packed run."""
    if path.is_dir():
        record = thinned(Run.open(path))
        snapshots = functools.partial(_folder_snapshots, path, record["spec"]["train.steps"])
        try:
            return run_data(path, record, snapshots)
        except WrongField as error:
            raise RunError(
                f"{path / 'config.json'} cannot be used: {error}; leave the folder out"
            ) from error
    try:
        return whole_run(path, read_packed(path))
    except WrongField as error:
        raise RunError(
            f"{path} is damaged: {error}; pack the run again, or leave the file out"
        ) from error


def whole_run(path: Path, record: Record) -> RunData:
    """Return a record that has its densities as a run, every field checked."""
    densities = [_snapshot(fields) for fields in Fields(record).objects("densities")]
    return run_data(path, record, functools.partial(list, densities))


def _folder_snapshots(folder: Path, budget: int) -> list[Snapshot]:
    return [_snapshot(Fields(record)) for record in thinned_densities(folder, budget)]


def sections(runs: Sequence[RunData]) -> list[Section]:
    """Group runs by algorithm and environment, and inside by variant."""
    grouped: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in runs:
        grouped.setdefault((run.algorithm, run.env), {}).setdefault(run.label, []).append(run)
    found = []
    for (algorithm, env), variants in grouped.items():
        ordered = sorted(
            variants.items(), key=lambda item: (*identity.order(item[1][0].spec), item[0])
        )
        by_seed = [
            Variant(label, sorted(alike, key=lambda run: run.seed)) for label, alike in ordered
        ]
        found.append(Section(algorithm, env, by_seed))
    return found


def run_data(path: Path, record: Record, snapshots: Callable[[], list[Snapshot]]) -> RunData:
    """Return a record as a run, every field but the densities checked."""
    fields = Fields(record)
    spec = _spec(fields.fields("spec"))
    health = fields.fields("health")
    steps = health.rising("steps")
    thresholds, deltas = health.numbers("threshold"), health.numbers("delta")
    scores, finals = _scores(fields.fields("scores"), spec)
    versions = fields.fields("versions")
    return RunData(
        path=path,
        name=fields.text("name"),
        label="",
        algorithm=fields.text("algorithm"),
        spec=spec,
        versions={name: versions.text(name) for name in versions.values},
        commit=fields.text("commit") if "commit" in fields else None,
        protocol=fields.whole("protocol"),
        machine=fields.text("machine"),
        summary=_summary(fields),
        reached=fields.whole("reached"),
        scores=scores,
        finals=finals,
        episodes=fields.whole("episodes"),
        lost_episodes=fields.whole("lost_episodes"),
        health_steps=steps,
        layers=dict(_layer(layer, len(steps)) for layer in health.objects("layers")),
        representation=health.text("representation"),
        threshold=_last(thresholds),
        delta=_last(deltas),
        steps_per_second=fields.number("steps_per_second"),
        seconds=fields.number("seconds"),
        troubles=fields.texts("troubles"),
        read_snapshots=snapshots,
    )


def _summary(fields: Fields) -> dict[str, float] | None:
    if "summary" not in fields:
        return None
    summary = fields.fields("summary")
    return {name: summary.number(name) for name in summary.values}


def _spec(fields: Fields) -> dict[str, Any]:
    """Check the settings that a report reads; the others are only shown."""
    for name in ("env", *identity.VARIANT):
        fields.text(name)
    fields.whole("seed")
    fields.whole("train.steps", 1)
    for name in ("train.until", "train.greedy_envs", "train.eval_every"):
        if name in fields:
            fields.whole(name)
    return fields.values


def _scores(
    fields: Fields, spec: Mapping[str, Any]
) -> tuple[dict[ScoreKind, Series], dict[ScoreKind, float]]:
    scores: dict[ScoreKind, Series] = {}
    finals: dict[ScoreKind, float] = {}
    kinds = [kind for kind in SCORES if kind in fields or kind == "training"]
    for kind in kinds:
        one = fields.fields(kind)
        values = one.numbers("values")
        at = one.rising("steps") if kind == "evaluation" else places(spec["train.steps"], PLACES)
        if len(values) > len(at) or (kind == "evaluation" and len(values) < len(at)):
            raise WrongField(f"scores.{kind} has {len(values)} values for {len(at)} steps")
        scores[kind] = Series(at[: len(values)], values)
        finals[kind] = one.number("final")
    return scores, finals


def _layer(fields: Fields, rows: int) -> tuple[str, dict[str, FloatArray]]:
    """Return a layer's name and measures."""
    name, columns = fields.text("name"), fields.fields("measures")
    measures: dict[str, FloatArray] = {}
    for key in RECORDED:
        values = columns.numbers(key) if key in columns else np.full(rows, np.nan)
        if len(values) != rows:
            raise WrongField(f"health of {name}: {key} has {len(values)} values for {rows} rows")
        measures[key] = values
    return name, measures | _shares(measures)


def _last(values: FloatArray) -> float | None:
    return float(values[-1]) if values.size and np.isfinite(values[-1]) else None


def _shares(measures: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the parts of what the next layer receives as shares of the whole."""
    parts = np.array([measures[part] for part in PARTS])
    if np.isnan(parts[2]).all():
        parts[2] = np.where(np.isnan(parts[0]), np.nan, 0.0)  # a next layer without a bias
    total = parts.sum(axis=0)
    shares = np.divide(parts, total, out=np.where(np.isnan(parts), np.nan, 0.0), where=total > 0)
    return dict(zip(PART_SHARES, shares, strict=True))


def _snapshot(fields: Fields) -> Snapshot:
    """Return densities as they are drawn."""
    neurons = fields.wholes("neurons")
    curves = [fields.numbers(key) for key in ("low", "high", "peak", "height")]
    levels = fields.values.get("levels")
    flags = fields.flags("dormant")
    counts = {len(neurons), len(flags), *map(len, curves)}
    if not isinstance(levels, list) or counts != {len(levels)} or not levels:
        raise WrongField("densities are not of the same neurons throughout")
    low, high, peak, height = curves
    if not np.isfinite(curves).all() or not (height > 0).all():
        raise WrongField("densities have no range or no height")
    at = np.array([density_places(*ends) for ends in zip(low, high, peak, strict=True)])
    heights = np.array([Fields({"levels": of}, "densities").numbers("levels") for of in levels])
    if heights.shape != at.shape:
        raise WrongField(f"densities.levels has not {at.shape[1]} places for every neuron")
    grid = KdeGrid(
        neurons=neurons,
        places=at,
        density=density_of(heights, height),
        dormant=np.array(flags, dtype=np.bool_),
        bounded=fields.flag("bounded"),
        title=fields.text("title"),
    )
    return Snapshot(fields.whole("step"), grid)
