"""Training runs as a report needs them: labelled, grouped by variant, on common steps."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hadamard.core.run import Run, RunError
from hadamard.report.kde_grid import KdeGrid

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

WINDOW = 100
"""Episodes a score is the mean of."""
POINTS = 100
"""Places along the budget at which a learning curve is evaluated."""

HEALTH = ("dormant_fraction", "effective_rank", "full_rank", "hidden_bias_share")
PARTS = ("live_contribution", "dormant_contribution", "bias_contribution")

_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU", "gelu": "GELU", "silu": "SiLU"}
_LAYERS = {
    "plain": "{}",
    "layernorm": "{} + LayerNorm",
    "crelu": "{}, both signs",
    "widened": "{}, widened",
    "hadamard": "{} + HR",
    "hadamard2": "{} + 2HR",
}
_NORMS = {"none": "{}", "layer": "{} + LayerNorm", "layer_map": "{} + LayerNorm (maps)"}
_NEEDED = ("env", "seed", "net.layer", "net.activation", "net.norm", "train.steps", "redo.enabled")
# What a run writes and where it runs: runs that differ only here are the same experiment.
_BOOKKEEPING = ("env", "seed", "run_dir", "device")


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
    """All settings, flat: ``{"net.layer": "hadamard", ...}``."""
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
    snapshots: Sequence[Snapshot]
    """First and last, or the only one, or none."""
    steps_per_second: float

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
        """Return a measure as it stands at the end of what there is; NaN if it is missing."""
        if measure in ("score", "greedy"):
            series = self.episodes if measure == "score" else self.greedy
            values = series.values[-WINDOW:]
            if measure == "greedy" and self.spec.get("train.eval_every"):
                values = series.values[series.steps == series.steps[-1:]]  # the last evaluation
            return float(values.mean()) if values.size else float("nan")
        if measure == "steps_per_second":
            return self.steps_per_second
        values = self.health[measure]
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

    def finals(self, measure: str) -> FloatArray:
        """Return a measure at the end of every finished run, NaN where it is missing."""
        return np.array([run.final(measure) for run in self.finished], dtype=np.float64)

    def score_curve(self, steps: FloatArray) -> FloatArray:
        """Return the smoothed training scores, (seeds, steps); NaN where a run has not been."""
        curves = [
            np.where(steps <= run.reached, run.episodes.smoothed(steps), np.nan)
            for run in self.runs
        ]
        return np.array(curves)

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
        return f"{self.algorithm.upper()} on {self.env}"

    @property
    def runs(self) -> list[RunData]:
        """All runs, variant by variant."""
        return [run for variant in self.variants for run in variant.runs]

    def grid(self) -> FloatArray:
        """Return the steps at which learning curves are evaluated."""
        return np.linspace(0, max(run.steps for run in self.runs), POINTS + 1)[1:]

    def baseline(self, variant: Variant) -> Variant | None:
        """Return what a variant is compared with; None for the section's first.

        The ordinary layer with the same activation, and of several the one that is most alike;
        where there is none, the section's first variant.
        """
        spec = variant.runs[0].spec
        before = list(self.variants[: self.variants.index(variant)])
        ordinary = [
            other
            for other in before
            if other.runs[0].spec["net.activation"] == spec["net.activation"]
            and other.runs[0].spec["net.layer"] == "plain"
            and not other.runs[0].spec["redo.enabled"]
        ]
        if ordinary:
            return min(ordinary, key=lambda other: len(changed(other.runs[0].spec, spec)))
        return before[0] if before else None


def load(paths: Iterable[str | os.PathLike[str]]) -> list[RunData]:
    """Read runs, each path being a run's folder or a folder with runs at any depth in it."""
    folders = {folder.resolve(): folder for path in paths for folder in _folders(Path(path))}
    return _labelled([_read(Run.open(folder)) for folder in folders.values()])


def sections(runs: Sequence[RunData]) -> list[Section]:
    """Group runs by algorithm and environment, and inside by variant."""
    grouped: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in runs:
        grouped.setdefault((run.algorithm, run.env), {}).setdefault(run.label, []).append(run)
    found = []
    for (algorithm, env), variants in grouped.items():
        ordered = sorted(variants.items(), key=lambda item: _order(item[1][0]))
        by_seed = [
            Variant(label, sorted(alike, key=lambda run: run.seed)) for label, alike in ordered
        ]
        found.append(Section(algorithm, env, by_seed))
    return found


def experiment(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that make the experiment: not the seed, nor what is written where."""
    return {
        name: value
        for name, value in spec.items()
        if name not in _BOOKKEEPING
        and (not name.startswith("train.") or name == "train.steps")
        and (not name.startswith("redo.") or name == "redo.enabled" or spec["redo.enabled"])
    }


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the settings of the experiment in which two runs differ."""
    before, after = experiment(old), experiment(new)
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names.

    Examples:
        >>> flat({"seed": 0, "net": {"width": 512}})
        {'seed': 0, 'net.width': 512}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
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
    spec = flat(config.get("spec") or {})
    if absent := [name for name in _NEEDED if name not in spec]:
        raise RunError(
            f"{run.path / 'config.json'} lacks spec.{absent[0]}: it is not the config of a "
            "training run, or of another version; leave the folder out"
        )
    episodes = _series(run, "episodes")
    health = [row for row in run.rows("health") if row.get("layers")]
    summary = run.done
    steps = [*episodes.steps[-1:], *(row["step"] for row in health[-1:])]
    steps += [row["step"] for row in run.rows("train")]
    if summary is not None:
        steps += [spec["train.steps"], summary.get("steps") or 0]
    measures = {
        # numpy turns None, the null of a value that is not finite or does not apply, into NaN.
        name: np.array([row["layers"][-1].get(name) for row in health], dtype=np.float64)
        for name in HEALTH + PARTS
    }
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
        greedy=_series(run, "eval").finite(),
        lost_episodes=int((~np.isfinite(episodes.values)).sum()),
        health_steps=np.array([row["step"] for row in health], dtype=np.int64),
        health=measures | _shares(measures),
        threshold=health[-1].get("threshold") if health else None,
        delta=health[-1].get("delta") if health else None,
        snapshots=_snapshots(run),
        steps_per_second=_speed(run, summary),
    )


def _series(run: Run, stream: str) -> Series:
    rows = list(run.rows(stream))
    try:
        steps = np.array([row["step"] for row in rows], dtype=np.int64)
        return Series(steps, np.array([row["score"] for row in rows], dtype=np.float64))
    except KeyError as error:
        raise RunError(f"a row of {run.path / f'{stream}.jsonl'} lacks {error}") from None


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


def _snapshots(run: Run) -> list[Snapshot]:
    rows = list(run.rows("kde"))
    # The last layer of a snapshot is the representation.
    rows = [row for row in rows if row["layer"] == rows[-1]["layer"]]
    found = []
    for row in (rows[0], rows[-1]) if len(rows) > 1 else rows:
        places = np.array(row["places"], dtype=np.float64)
        density = np.array(row["density"], dtype=np.float64)
        sound = np.isfinite(places).all(axis=1) & np.isfinite(density).all(axis=1)
        if sound.any():
            grid = KdeGrid(
                neurons=np.array(row["neurons"], dtype=np.int64)[sound],
                places=places[sound],
                density=density[sound],
                dormant=np.array(row["dormant"], dtype=np.bool_)[sound],
                bounded=bool(row["bounded"]),
                title=str(row["title"]),
            )
            found.append(Snapshot(int(row["step"]), grid))
    return found


def _speed(run: Run, summary: Mapping[str, Any] | None) -> float:
    rows = [row for row in run.rows("timing") if row.get("seconds")]
    last = rows[-1] if rows else summary or {}
    steps, seconds = last.get("step", last.get("steps")), last.get("seconds")
    return steps / seconds if steps and seconds else float("nan")


def _labelled(runs: list[RunData]) -> list[RunData]:
    norms: dict[str, set[str]] = {}
    for run in runs:
        norms.setdefault(run.algorithm, set()).add(run.spec["net.norm"])
    runs = [
        dataclasses.replace(run, label=_label(run.spec, len(norms[run.algorithm]) > 1))
        for run in runs
    ]
    alike: dict[tuple[str, str, str], list[RunData]] = {}
    for run in runs:
        alike.setdefault((run.algorithm, run.env, run.label), []).append(run)
    return [_told_apart(run, alike[run.algorithm, run.env, run.label]) for run in runs]


def _label(spec: Mapping[str, Any], with_norm: bool) -> str:
    layer, activation = spec["net.layer"], spec["net.activation"]
    if (layer, activation) == ("crelu", "relu"):
        label = "CReLU"
    else:
        label = _LAYERS.get(layer, f"{{}} + {layer}").format(
            _ACTIVATIONS.get(activation, activation)
        )
    if with_norm:
        norm = spec["net.norm"]
        label = _NORMS.get(norm, f"{{}} + {norm}").format(label)
    return f"{label} + ReDo" if spec["redo.enabled"] else label


def _told_apart(run: RunData, alike: Sequence[RunData]) -> RunData:
    """Return the run with a label that also says how it differs from others so labelled.

    Runs of one label are taken for seeds of one experiment, so a label must say what else
    differs; and one seed run twice would pass for two.
    """
    names = [name for name in experiment(run.spec) if any(_differ(name, run, o) for o in alike)]
    for other in alike:
        same = not any(_differ(name, run, other) for name in names)
        if other is not run and other.seed == run.seed and same:
            raise RunError(
                f"{run.path} and {other.path} are the same run ({run.label}, seed {run.seed}): "
                "leave one of them out"
            )
    told = "".join(f", {name} {run.spec[name]}" for name in names)
    return dataclasses.replace(run, label=run.label + told)


def _differ(name: str, run: RunData, other: RunData) -> bool:
    return bool(run.spec.get(name) != other.spec.get(name))


def _order(run: RunData) -> tuple[Any, ...]:
    layers = list(_LAYERS)
    layer, norm = run.spec["net.layer"], run.spec["net.norm"]
    return (
        layers.index(layer) if layer in layers else len(layers),
        bool(run.spec["redo.enabled"]),
        norm != "none",
        run.spec["net.activation"],
        run.label,
    )
