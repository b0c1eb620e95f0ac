"""A run thinned to what reports show of it; folders and packed runs are both read as this.

A record is a JSON object. Its scores are those at `PLACES` equally spaced places of the budget,
its final numbers are of the whole streams, its health has every row.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hadamard.core.config import flattened
from hadamard.core.identity import REQUIRED, horizon
from hadamard.core.run import Run, RunError
from hadamard.core.scores import greedy_window_mean, greedy_window_means
from hadamard.report.data import rows
from hadamard.report.data.fields import LARGEST, all_numbers, is_number, is_whole
from hadamard.report.data.series import FloatArray, Series, places
from hadamard.report.measures import LATE_SHARE, RECORDED, TRAINING_WINDOW
from hadamard.report.statistics.normalize import final_mean

Record = dict[str, Any]

PLACES = 200
"""At how many places of the budget scores are kept."""
DENSITY_POINTS = 48
"""At how many places the density of a neuron is kept."""
_DENSITY_LEVELS = 999
_DIGITS = 7
_WHOLE = 10**_DIGITS
_SMALL_FILE = 2**20


def thinned(run: Run) -> Record:
    """Read a run's folder; the densities are read by `thinned_densities`."""
    troubles: list[str] = []
    config, spec = _config(run)
    end = horizon(spec)
    summary = _summary(run, troubles)
    episodes, played = (_series(run, stream, troubles) for stream in ("episodes", "eval"))
    scored = episodes.finite()
    health = _health(run, troubles)
    losses, timing = (_last_row(run, stream, troubles) for stream in ("train", "timing"))
    reached = [*episodes.steps[-1:].tolist(), *played.steps[-1:].tolist(), *health["steps"][-1:]]
    reached.append(losses.get("step"))
    if summary is not None:
        reached += [end, summary.get("steps")]
    furthest = max((int(step) for step in reached if _is_step(step)), default=0)
    speed, seconds = _speed(timing, summary or {})
    return {
        "name": run.path.resolve().name,
        "algorithm": config.get("algorithm"),
        "spec": {name: _setting(value) for name, value in spec.items() if name != "run_dir"},
        "versions": config.get("versions") or {},
        "commit": config.get("commit"),
        "protocol": config.get("protocol", 1),
        "machine": config.get("machine") or spec.get("device") or "",
        "summary": summary,
        "reached": furthest,
        "seconds": seconds,
        "steps_per_second": speed,
        "episodes": int(episodes.steps.size),
        "lost_episodes": int(episodes.steps.size - scored.steps.size),
        "scores": _scores(spec, scored, played.finite(), furthest, min(furthest, end)),
        "health": health,
        "troubles": list(dict.fromkeys(troubles)),
    }


# Settings and summary


def _config(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config and the settings in it, by their dotted names."""
    path = run.path / "config.json"
    _check_small(path)
    config: object = run.config
    if not isinstance(config, dict) or not isinstance(config.get("spec") or {}, dict):
        raise RunError(f"{path} is not the config of a training run; leave the folder out")
    spec = flattened(config.get("spec") or {})
    if absent := [name for name in REQUIRED if name not in spec]:
        raise RunError(
            f"{path} lacks spec.{absent[0]}: it is not the config of a training run, or of "
            "another version; leave the folder out"
        )
    if not is_whole(spec["train.steps"]) or not spec["train.steps"]:
        raise RunError(
            f"{path}: spec.train.steps is {spec['train.steps']!r}, not a number of steps; "
            "leave the folder out"
        )
    return config, spec


def _setting(value: Any) -> Any:
    """Return a setting as JSON can hold it: inf and nan become words."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _summary(run: Run, troubles: list[str]) -> dict[str, Any] | None:
    """Return the closing summary's numbers; None while the run is not finished."""
    path = run.path / "DONE"
    try:
        _check_small(path)
        summary: object = run.done
    except FileNotFoundError:
        return None
    if not isinstance(summary, dict):
        troubles.append(f"{path} is damaged, so the run counts as unfinished")
        return None
    return {name: value for name, value in summary.items() if value is None or is_number(value)}


def _check_small(path: Path) -> None:
    """Refuse a file that is no plain one, or much larger than such files are."""
    kind = path.lstat()
    if not stat.S_ISREG(kind.st_mode):
        raise RunError(f"{path} is a link or no plain file, which is not followed: copy it here")
    if kind.st_size > _SMALL_FILE:
        raise RunError(
            f"{path} has {kind.st_size:,} bytes, more than {_SMALL_FILE:,}: it is damaged; leave "
            "the folder out"
        )


# Streams


def _stream(run: Run, name: str, troubles: list[str]) -> Path | None:
    """Return a stream's path; None if there is none, or something else in its place."""
    path = run.path / f"{name}.jsonl"
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind):
        troubles.append(f"{path} is a link or no plain file, which is not followed")
        return None
    return path


def _last_row(run: Run, name: str, troubles: list[str]) -> dict[str, Any]:
    path = _stream(run, name, troubles)
    return rows.last_row(path) if path else {}


def _is_step(value: object) -> bool:
    return is_number(value) and 0 <= value <= LARGEST


def _series(run: Run, stream: str, troubles: list[str]) -> Series:
    """Return the scores of a stream, NaN where one was not finite."""
    path = _stream(run, stream, troubles)
    if path is None:
        return Series(np.empty(0, np.int64), np.empty(0))
    found, damaged = rows.columns(path, ("step", "score"))
    troubles += damaged
    steps, scores = found["step"], found["score"]
    with np.errstate(invalid="ignore"):
        sound = (steps >= 0) & (steps <= LARGEST)
    if not sound.all():
        troubles.append(f"{(~sound).sum():,} rows of {path} have a step that is no step")
        steps, scores = steps[sound], scores[sound]
    if (np.diff(steps) < 0).any():
        troubles.append(f"the rows of {path} are not in the order of their steps")
        order = np.argsort(steps, kind="stable")
        steps, scores = steps[order], scores[order]
    return Series(steps.astype(np.int64), scores)


def _scores(
    spec: Mapping[str, Any], episodes: Series, played: Series, reached: int, trained: int
) -> Record:
    """Return the kinds of scores a run has, thinned, and their final numbers."""
    budget = spec["train.steps"]
    at = places(budget, PLACES)
    at = at[at <= reached]
    last = episodes.values[-TRAINING_WINDOW:]
    found: Record = {
        "training": {
            "values": short(episodes.smoothed(at)),
            "final": exact(last.mean() if last.size else math.nan),
        }
    }
    if spec.get("train.greedy_envs"):
        found["greedy"] = {
            "values": short(greedy_window_means(*played, at, budget)),
            "final": exact(greedy_window_mean(*played, reached, trained)),
        }
    if spec.get("train.eval_every"):
        evaluations = played.by_step()
        means = evaluations.values
        late = final_mean(*evaluations, trained, LATE_SHARE)
        if evaluations.steps.size > PLACES:
            evaluations = evaluations.averaged(budget, PLACES)
        found["evaluation"] = {
            "steps": evaluations.steps.tolist(),
            "values": short(evaluations.values),
            "final": exact(means[-1] if means.size and math.isnan(late) else late),
        }
    return found


def _health(run: Run, troubles: list[str]) -> Record:
    """Return the diagnoses as columns, layer by layer."""
    path = _stream(run, "health", troubles)
    read, damaged = rows.rows(path) if path else rows.Rows([], [])
    troubles += damaged
    sound = [row for row in read if _is_step(row["step"]) and _has_layers(row)]
    sound.sort(key=lambda row: row["step"])
    by_layer: dict[str, list[Mapping[str, Any]]] = {}
    for place, row in enumerate(sound):
        for number, layer in enumerate(row["layers"]):
            name = str(layer.get("name", f"layer {number}"))
            by_layer.setdefault(name, [{}] * len(sound))[place] = layer
    layers = []
    for name, measured in by_layer.items():
        columns = {key: [layer.get(key) for layer in measured] for key in RECORDED}
        for key, values in columns.items():
            if not all_numbers(values):
                troubles.append(f"{path} has something else than numbers as {key!r} of {name}")
        kept = {key: short(values) for key, values in columns.items()}
        measured_at_all = {key: of for key, of in kept.items() if any(v is not None for v in of)}
        layers.append({"name": name, "measures": measured_at_all})
    return {
        "steps": [int(row["step"]) for row in sound],
        "layers": layers,
        "representation": _representation(sound[-1]) if sound else "",
        **{key: short(row.get(key) for row in sound)
           for key in ("threshold", "delta", "observations")},
    }  # fmt: skip


def _representation(row: Mapping[str, Any]) -> str:
    """Return the layer a row names; of rows that name none, which are older, it is the last."""
    names = [str(layer.get("name", f"layer {i}")) for i, layer in enumerate(row["layers"])]
    named = row.get("representation")
    return named if named in names else names[-1]


def _has_layers(row: Mapping[str, Any]) -> bool:
    layers = row.get("layers")
    return isinstance(layers, list) and bool(layers) and all(isinstance(x, dict) for x in layers)


def _speed(
    timing: Mapping[str, Any], summary: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Return steps a second and seconds; None where they are not known."""
    last = timing if timing.get("seconds") else summary
    steps, seconds = last.get("step", last.get("steps")), last.get("seconds")
    if not (_is_step(steps) and is_number(seconds)) or not steps or not seconds:
        return None, None
    return steps / seconds, float(seconds)


# Densities


def thinned_densities(folder: Path, budget: int) -> list[Record]:
    """Return the densities after a tenth of the budget and the last; or the last, or none."""
    path = _stream(Run(folder), "kde", [])
    last = rows.last_row(path) if path else {}
    if path is None or not last:
        return []
    # The last layer of a snapshot is the representation.
    first = rows.first_row(
        path, lambda row: row.get("layer") == last.get("layer") and 10 * row["step"] >= budget
    )
    first = first or last  # not so far yet
    found = []
    for row in (first, last) if first["step"] < last["step"] else (last,):
        try:
            snapshot = _snapshot(row)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            continue  # not written by this version
        if snapshot is not None:
            found.append(snapshot)
    return found


def _snapshot(row: Mapping[str, Any]) -> Record | None:
    places = np.array(row["places"], dtype=np.float64)
    density = np.array(row["density"], dtype=np.float64)
    sound = np.isfinite(places).all(axis=1) & np.isfinite(density).all(axis=1)
    sound &= density.max(axis=1) > 0
    if not sound.any() or not _is_step(row["step"]):
        return None
    curves = [_curve(*curve) for curve in zip(places[sound], density[sound], strict=True)]
    return {
        "step": int(row["step"]),
        "layer": str(row["layer"]),
        "title": str(row["title"]),
        "bounded": bool(row["bounded"]),
        "neurons": np.array(row["neurons"], dtype=np.int64)[sound].tolist(),
        "dormant": np.array(row["dormant"], dtype=np.bool_)[sound].tolist(),
        **{key: [curve[key] for curve in curves] for key in curves[0]},
    }


def _curve(places: FloatArray, density: FloatArray) -> Record:
    """Return a density at few places, evenly spread but for one that is moved to the peak."""
    at, height = float(places[density.argmax()]), float(density.max())
    low, peak, high = (rounded(value) for value in (places[0], at, places[-1]))
    few = np.interp(density_places(low, high, at), places, density)
    return {
        "low": low,
        "high": high,
        "peak": peak,
        "height": rounded(height),
        "levels": np.rint(_DENSITY_LEVELS * few / height).astype(np.int64).tolist(),
    }


def density_places(low: float, high: float, peak: float) -> FloatArray:
    """Return where a thinned density is known."""
    even = np.linspace(low, high, DENSITY_POINTS)
    even[np.abs(even - peak).argmin()] = peak
    return even


def density_of(levels: FloatArray, height: FloatArray) -> FloatArray:
    """Return densities, (neurons, points), from their levels and their heights, (neurons)."""
    return levels * height[:, None] / _DENSITY_LEVELS


# Numbers


def rounded(value: float) -> float:
    """Return a number with seven digits."""
    return float(f"{value:.{_DIGITS}g}")


def exact(value: float) -> float | None:
    """Return a number as it is; None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def short(values: Iterable[Any] | Sequence[Any]) -> list[float | int | None]:
    """Return numbers with few digits, and None for whatever is not a finite number."""
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if all_numbers(plain):
        return [None if value is None else _short(value) for value in plain]
    return [_short(value) if is_number(value) else None for value in plain]


def _short(value: float) -> float | int:
    if isinstance(value, int) and value < _WHOLE:
        return value
    few = rounded(value)
    return int(few) if few.is_integer() and abs(few) < _WHOLE else few
