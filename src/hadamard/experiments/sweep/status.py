"""A run's state, its progress and the process that trains it, read from its files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hadamard.core import lock
from hadamard.core.files import RunError
from hadamard.core.run import Run
from hadamard.core.streams import last_rows
from hadamard.core.typed import WrongType, checked
from hadamard.experiments.grid import Job

State = Literal["absent", "running", "interrupted", "damaged", "finished", "failed"]


def run_state(job: Job) -> State:
    """Return the state of a run; absent means that it was never started."""
    if job.finished:
        return "finished"
    if lock.holder(job.path) is not None:
        return "failed" if _left_out(job) else "running"
    if os.path.lexists(job.failure):
        return "failed"
    if not (run := Run(job.path)).exists:
        return "absent"
    try:
        return "interrupted" if run.config else "damaged"
    except RunError:
        return "damaged"


def _left_out(job: Job) -> bool:
    """Tell whether the process that holds a run has given it up, and trains the rest of a fleet."""
    try:
        return os.lstat(job.failure).st_mtime_ns >= os.lstat(job.path / "lock").st_mtime_ns
    except OSError:
        return False


@dataclass(frozen=True)
class Progress:
    """A run's progress and health; unknown values are None."""

    step: int = 0
    rate: float | None = None
    """Steps per second since the row before last."""
    score: float | None = None
    dormant: float | None = None
    """The fraction of dormant neurons of the representation in the last diagnosis."""
    rank: int | None = None
    full_rank: int | None = None

    def seconds_left(self, steps: int) -> float | None:
        """Return the time to the end of a budget at the present rate, None if it is unknown."""
        return max(steps - self.step, 0) / self.rate if self.rate else None


def run_progress(path: Path) -> Progress:
    """Read a run's progress from the last rows of its streams; damaged values are unknown."""
    train = last_rows(path / "train.jsonl")
    if not train:
        return Progress()
    layer = _diagnosed_layer(path)
    return Progress(
        step=_value(train[-1], "step", int) or 0,
        rate=_rate(last_rows(path / "timing.jsonl", 2)),
        score=_value(train[-1], "score", float),
        dormant=_value(layer, "dormant_fraction", float),
        rank=_value(layer, "effective_rank", int),
        full_rank=_value(layer, "full_rank", int),
    )


def _diagnosed_layer(path: Path) -> dict[str, Any]:
    """Return the representation's row in the last diagnosis, empty if there is none."""
    for diagnosis in last_rows(path / "health.jsonl"):
        layers: list[dict[str, Any]] = _value(diagnosis, "layers", list[dict[str, Any]]) or []
        for layer in layers:
            if layer.get("name") == diagnosis.get("representation"):
                return layer
    return {}


def _rate(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the steps per second between the last two rows of timing."""
    if not rows:
        return None
    now, before = rows[-1], rows[0] if len(rows) > 1 else {"step": 0, "seconds": 0.0}
    numbers = [_value(row, key, float) for row in (now, before) for key in ("step", "seconds")]
    step, seconds, step_before, seconds_before = numbers
    if step is None or seconds is None or step_before is None or seconds_before is None:
        return None
    elapsed = seconds - seconds_before
    return (step - step_before) / elapsed if elapsed > 0 else None


def _value(row: dict[str, Any], key: str, kind: Any) -> Any:
    """Return a value of a row, None if it is missing, of another type or not finite."""
    try:
        value = checked(row.get(key), kind, key)
    except WrongType:
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value
