"""A run's folder as a record: what reports show of it, as one JSON object.

Its scores are those at `PLACES` equally spaced places of the budget, its final numbers are of all
rows of the streams, and its health has every row. A packed run is such a record in a file.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hadamard.core import identity, plugin_records
from hadamard.core.config import flattened
from hadamard.core.identity import REQUIRED, horizon
from hadamard.core.run import Run, RunError
from hadamard.core.scores import greedy_window_mean, greedy_window_means
from hadamard.report.data import rows
from hadamard.report.data.numbers import (
    LARGEST,
    are_numbers,
    finite_or_none,
    is_count,
    is_number,
    shortened,
)
from hadamard.report.data.relearned import thinned_relearning
from hadamard.report.data.series import Series, places
from hadamard.report.measures import LATE_SHARE, NETWORK, RECORDED, TRAINING_WINDOW
from hadamard.report.statistics.normalize import final_mean

Record = dict[str, Any]

PLACES = 200
"""At how many places of the budget scores are recorded."""
_SMALL_FILE = 2**20


def thinned(run: Run) -> Record:
    """Read a run's folder; the densities are read by `thinned_densities`."""
    troubles: list[str] = []
    config, spec = _config(run)
    if extensions := run.extensions:
        spec["extended"] = identity.extended(extensions)
    end = horizon(spec)
    summary = _summary(run, troubles)
    episodes, played = (_series(run, stream, troubles) for stream in ("episodes", "eval"))
    scored = episodes.finite()
    health = _health(run, troubles)
    losses, timing = (_last_row(run, stream, troubles) for stream in ("train", "timing"))
    if summary is not None:
        troubles += _losses(run)
    reached = [*episodes.steps[-1:].tolist(), *played.steps[-1:].tolist(), *health["steps"][-1:]]
    reached.append(losses.get("step"))
    if summary is not None:
        reached += [end, summary.get("steps")]
    furthest = max((int(step) for step in reached if rows.is_step(step)), default=0)
    speed, seconds = _speed(timing, summary or {})
    plugins = plugin_records.recorded(config)
    relearning = thinned_relearning(run, troubles)
    return {
        "name": run.path.resolve().name,
        "algorithm": config.get("algorithm"),
        "spec": {name: _setting(value) for name, value in spec.items() if name != "run_dir"},
        "versions": config.get("versions") or {},
        "commit": config.get("commit"),
        "protocol": config.get("protocol", 1),
        **({"plugins": plugins} if plugins else {}),
        "machine": config.get("machine") or spec.get("device") or "",
        "summary": summary,
        "reached": furthest,
        "seconds": seconds,
        "steps_per_second": speed,
        "episodes": int(episodes.steps.size),
        "lost_episodes": int(episodes.steps.size - scored.steps.size),
        "scores": _scores(spec, scored, played.finite(), furthest, min(furthest, end)),
        "health": health,
        **({"relearning": relearning} if relearning is not None else {}),
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
    if missing := [name for name in REQUIRED if name not in spec]:
        raise RunError(
            f"{path} lacks spec.{missing[0]}: it is not the config of a training run, or of "
            "another version; leave the folder out"
        )
    if not is_count(spec["train.steps"]) or not spec["train.steps"]:
        raise RunError(
            f"{path}: spec.train.steps is {spec['train.steps']!r}, not a number of steps; "
            "leave the folder out"
        )
    return config, spec


def _setting(value: Any) -> Any:
    """Return a setting as strict JSON can hold it: inf and nan become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _summary(run: Run, troubles: list[str]) -> dict[str, Any] | None:
    """Return the closing summary's numbers; None while the run is not finished."""
    try:
        summary, _ = run.ending()
    except FileNotFoundError:
        return None
    except (RunError, OSError) as error:
        troubles.append(f"{run.path} counts as unfinished: {error}")
        return None
    return {name: value for name, value in summary.items() if value is None or is_number(value)}


def _losses(run: Run) -> list[str]:
    """Say what a finished run's streams have lost since its end."""
    try:
        return [f"{run.path} has lost rows since its end: {loss}" for loss in run.losses()]
    except (RunError, OSError):  # whatever is in its place was reported where it was read
        return []


def _check_small(path: Path) -> None:
    """Refuse anything but a regular file, and one much larger than such files are."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise RunError(f"{path} is a link or no plain file, which is not followed: copy it here")
    if status.st_size > _SMALL_FILE:
        raise RunError(
            f"{path} has {status.st_size:,} bytes, more than {_SMALL_FILE:,}: it is damaged; leave "
            "the folder out"
        )


# Streams


def _last_row(run: Run, name: str, troubles: list[str]) -> dict[str, Any]:
    path = rows.stream_path(run, name, troubles)
    return rows.last_row(path) if path else {}


def _series(run: Run, stream: str, troubles: list[str]) -> Series:
    """Return the scores of a stream, NaN where one was not finite."""
    path = rows.stream_path(run, stream, troubles)
    if path is None:
        return Series(np.empty(0, np.int64), np.empty(0))
    columns, damage = rows.columns(path, ("step", "score"))
    troubles += damage
    steps, scores = columns["step"], columns["score"]
    with np.errstate(invalid="ignore"):
        valid = (steps >= 0) & (steps <= LARGEST)
    if not valid.all():
        troubles.append(f"{(~valid).sum():,} rows of {path} have a step that is no step")
        steps, scores = steps[valid], scores[valid]
    if (np.diff(steps) < 0).any():
        troubles.append(f"the rows of {path} are not in the order of their steps")
        order = np.argsort(steps, kind="stable")
        steps, scores = steps[order], scores[order]
    return Series(steps.astype(np.int64), scores)


def _scores(
    spec: Mapping[str, Any], episodes: Series, played: Series, reached: int, trained: int
) -> Record:
    """Return the kinds of scores a run has, thinned, and their final numbers.

    Args:
        spec: The run's settings.
        episodes: Scores of training episodes.
        played: Scores of greedy episodes.
        reached: How far the run came.
        trained: The same, at most its horizon.
    """
    budget = spec["train.steps"]
    steps = places(budget, PLACES)
    steps = steps[steps <= reached]
    last = episodes.values[-TRAINING_WINDOW:]
    scores: Record = {
        "training": {
            "values": shortened(episodes.smoothed(steps)),
            "final": finite_or_none(last.mean() if last.size else math.nan),
        }
    }
    if spec.get("train.greedy_envs"):
        scores["greedy"] = {
            "values": shortened(greedy_window_means(*played, steps, budget)),
            # A run that has just begun has no window yet.
            "final": finite_or_none(
                greedy_window_mean(*played, reached, trained) if trained else math.nan
            ),
        }
    if spec.get("train.eval_every"):
        evaluations = played.by_step()
        means = evaluations.values
        late = final_mean(*evaluations, trained, LATE_SHARE)
        if evaluations.steps.size > PLACES:
            evaluations = evaluations.averaged(budget, PLACES)
        scores["evaluation"] = {
            "steps": evaluations.steps.tolist(),
            "values": shortened(evaluations.values),
            "final": finite_or_none(means[-1] if means.size and math.isnan(late) else late),
        }
    return scores


def _health(run: Run, troubles: list[str]) -> Record:
    """Return the diagnoses as columns, layer by layer."""
    path = rows.stream_path(run, "health", troubles)
    parsed, damage = rows.rows(path) if path else rows.Rows([], [])
    troubles += damage
    diagnoses = [row for row in parsed if rows.is_step(row["step"]) and _has_layers(row)]
    diagnoses.sort(key=lambda row: row["step"])
    by_layer: dict[str, list[Mapping[str, Any]]] = {}
    for index, row in enumerate(diagnoses):
        for number, layer in enumerate(row["layers"]):
            name = str(layer.get("name", f"layer {number}"))
            by_layer.setdefault(name, [{}] * len(diagnoses))[index] = layer
    layers = []
    for name, measured in by_layer.items():
        measures = {}
        for key in RECORDED:
            values = [layer.get(key) for layer in measured]
            if not are_numbers(values):
                troubles.append(f"{path} has something else than numbers as {key!r} of {name}")
            numbers = shortened(values)
            if any(value is not None for value in numbers):
                measures[key] = numbers
        layers.append({"name": name, "measures": measures})
    return {
        "steps": [int(row["step"]) for row in diagnoses],
        "layers": layers,
        **_network(path, diagnoses, troubles),
        "representation": _representation(diagnoses[-1]) if diagnoses else "",
        **{key: shortened(row.get(key) for row in diagnoses)
           for key in ("threshold", "delta", "observations")},
    }  # fmt: skip


def _network(
    path: Path | None, diagnoses: list[dict[str, Any]], troubles: list[str]
) -> dict[str, Any]:
    """Return the measures of the whole network as columns; older runs have none."""
    rows_of_network = [row.get("network") for row in diagnoses]
    measured = [row if isinstance(row, dict) else {} for row in rows_of_network]
    columns = {}
    for key in NETWORK:
        values = [row.get(key) for row in measured]
        if not are_numbers(values):
            troubles.append(f"{path} has something else than numbers as {key!r} of the network")
        numbers = shortened(values)
        if any(value is not None for value in numbers):
            columns[key] = numbers
    return {"network": columns} if columns else {}


def _representation(row: Mapping[str, Any]) -> str:
    """Return the layer a row names; of rows that name none, which are older, it is the last."""
    names = [str(layer.get("name", f"layer {i}")) for i, layer in enumerate(row["layers"])]
    representation = row.get("representation")
    return representation if representation in names else names[-1]


def _has_layers(row: Mapping[str, Any]) -> bool:
    layers = row.get("layers")
    if not isinstance(layers, list) or not layers:
        return False
    return all(isinstance(layer, dict) for layer in layers)


def _speed(
    timing: Mapping[str, Any], summary: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Return steps per second and seconds; None where they are unknown."""
    last = timing if timing.get("seconds") else summary
    steps, seconds = last.get("step", last.get("steps")), last.get("seconds")
    if not (rows.is_step(steps) and is_number(seconds)) or not steps or not seconds:
        return None, None
    return steps / seconds, float(seconds)
