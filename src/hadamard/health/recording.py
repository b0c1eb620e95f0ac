"""Where a monitor writes: a file of diagnoses, or a run that `hadamard report` reads."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from hadamard.text import did_you_mean

_SCORES = 100
"""Scores that the final one averages, as in runs of `hadamard train`."""
_KNOWN: dict[str, type] = {
    "algorithm": str,
    "env": str,
    "seed": int,
    "steps": int,
    "layer": str,
    "activation": str,
    "norm": str,
}
"""What ``about`` says of a run; all else in it is a setting of the algorithm."""


class Record(Protocol):
    """Something that diagnoses and scores are written to."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a diagnosis."""

    def score(self, value: float, step: int) -> None:
        """Write an episode's score."""

    def close(self, *, finished: bool) -> None:
        """Finish."""

    def discard(self) -> None:
        """Close it, and remove what only its opening made."""


class RowFile:
    """A file with one JSON object for each diagnosis; rows that are there stay."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed in close()
        with contextlib.suppress(ImportError):  # Windows has no such locks
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise ValueError(
                    f"another monitor writes to {path}: give each its own, or close the first"
                ) from None

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a diagnosis."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def score(self, value: float, step: int) -> None:
        """Do nothing: the file holds diagnoses only."""

    def close(self, *, finished: bool) -> None:  # noqa: ARG002
        """Close the file."""
        self._file.close()

    def discard(self) -> None:
        """Close the file, which may hold earlier rows."""
        self._file.close()


class RunFolder:
    """A run like those of `hadamard train`, with diagnoses and scores but no checkpoints."""

    def __init__(self, path: Path, about: Mapping[str, Any], model: nn.Module) -> None:
        from hadamard.core.run import Run

        known = {**_architecture(model), **about}
        self._budget: int | None = known.get("steps")
        self._started = time.monotonic()
        self._scores: deque[float] = deque(maxlen=_SCORES)
        self._episodes = self._step = 0
        self._config = {
            "algorithm": known.get("algorithm", "custom"),
            "spec": {
                "env": known.get("env", "custom"),
                "seed": known.get("seed", 0),
                "remedy": "none",
                "net": {name: known[name] for name in ("layer", "activation", "norm")},
                "train": {"steps": self._budget or 1},
                "recorded_by": "Monitor",
                "algo": {key: value for key, value in known.items() if key not in _KNOWN},
            },
        }
        self._run = Run.create(path, self._config)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a diagnosis."""
        self._reach(row["step"])
        if self._budget is None:
            self._run.set_steps(max(1, self._step))
        self._run.write("health", row)
        self._run.flush()

    def score(self, value: float, step: int) -> None:
        """Write an episode's score."""
        self._reach(step)
        self._episodes += 1
        finite = math.isfinite(value)
        self._scores.extend([value] if finite else [])
        self._run.write("episodes", {"step": step, "score": value if finite else None})

    def _reach(self, step: int) -> None:
        self._step = max(self._step, step)

    def close(self, *, finished: bool) -> None:
        """Close the run; a finished one gets its closing summary, any other can be reported too."""
        if self._run.path.is_dir():
            if self._budget is None:
                self._run.set_steps(max(1, self._step))
            if finished:
                mean = sum(self._scores) / len(self._scores) if self._scores else None
                self._run.flush()
                self._run.finish(
                    {
                        "steps": self._step,
                        "score": mean,
                        "episodes": self._episodes,
                        "seconds": time.monotonic() - self._started,
                    }
                )
        self._run.close()

    def discard(self) -> None:
        """Remove the run, which was made just now."""
        self._run.close()
        shutil.rmtree(self._run.path)


def open_record(
    path: str | os.PathLike[str] | None, about: Mapping[str, Any] | None, model: nn.Module
) -> Record | None:
    """Open what a monitor writes to: a file if the path ends in .jsonl, else a run's folder."""
    if about is not None:
        _check_about(about)
    if path is None:
        if about is not None:
            raise ValueError("about describes a run: give its folder as path, or leave about out")
        return None
    try:
        place = Path(path)
    except TypeError:
        raise TypeError(
            f"path must be a file or a folder, got {type(path).__name__}: {path!r}"
        ) from None
    if place.suffix == ".jsonl":
        if about is not None:
            raise ValueError(
                f"about describes a run, and {place} is a file of diagnoses: give a folder, such "
                f"as {place.with_suffix('')}"
            )
        return RowFile(place)
    return RunFolder(place, about or {}, model)


def _check_about(about: Mapping[str, Any]) -> None:
    if not isinstance(about, Mapping):
        raise TypeError(f"about must be a mapping of names to values, got {type(about).__name__}")
    for name, value in about.items():
        if not isinstance(name, str):
            raise TypeError(f"about must have names as keys, got {name!r}")
        kind = _KNOWN.get(name)
        if kind is None:
            hint = did_you_mean(name, _KNOWN, count=1)
            if hint:
                raise ValueError(f"about has an unknown key {name!r}{hint}")
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"about[{name!r}] must be a text, a number or a yes or no, got "
                    f"{type(value).__name__}: {value!r}"
                )
        elif not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(
                f"about[{name!r}] must be {kind.__name__}, got {type(value).__name__}: {value!r}"
            )
    for name, least in (("seed", 0), ("steps", 1)):
        if about.get(name, least) < least:
            raise ValueError(f"about[{name!r}] is {about[name]}: it counts from {least} up")


def _architecture(model: nn.Module) -> dict[str, str]:
    """Return a network's variant, as far as its modules show it."""
    names = [type(module).__name__ for module in model.modules()]
    hadamard = {"Hadamard", "HadamardLinear", "HadamardConv2d"} & set(names)
    activations = [
        type(module).__name__.lower()
        for module in model.modules()
        if type(module).__module__ == nn.ReLU.__module__ and type(module) is not nn.Softmax
    ]
    return {
        "layer": "hadamard" if hadamard else "plain",
        "activation": max(set(activations), key=activations.count) if activations else "unknown",
        "norm": "layer" if {"LayerNorm", "BranchNorm"} & set(names) else "none",
    }
