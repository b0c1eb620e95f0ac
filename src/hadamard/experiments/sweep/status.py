"""A run's state, its progress and the process that trains it, read from its files."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hadamard.core.streams import last_rows
from hadamard.experiments.grid import Job

State = Literal["absent", "running", "interrupted", "finished", "failed"]


def run_state(job: Job) -> State:
    """Return the state of a run; absent means that it was never started."""
    if job.finished:
        return "finished"
    if training_process(job.path) is not None:
        return "running"
    if job.failure.exists():
        return "failed"
    return "interrupted" if (job.path / "config.json").exists() else "absent"


def training_process(path: Path) -> int | None:
    """Return the process that trains in a run folder, None if there is none.

    It is 0 while a process has locked the folder and not yet written its number.
    """
    try:
        file = open(path / "lock", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = file.read().strip()
            return int(text) if text.isdigit() else 0
    return None


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
    """Read a run's progress from the last rows of its streams."""
    train = last_rows(path / "train.jsonl")
    if not train:
        return Progress()
    rate = dormant = rank = full_rank = None
    if timing := last_rows(path / "timing.jsonl", 2):
        now, before = timing[-1], timing[0] if len(timing) > 1 else {"step": 0, "seconds": 0.0}
        seconds = now["seconds"] - before["seconds"]
        rate = (now["step"] - before["step"]) / seconds if seconds > 0 else None
    for diagnosis in last_rows(path / "health.jsonl"):
        for layer in diagnosis["layers"]:
            if layer["name"] == diagnosis["representation"]:
                dormant, rank = layer["dormant_fraction"], layer["effective_rank"]
                full_rank = layer["full_rank"]
    return Progress(train[-1]["step"], rate, train[-1].get("score"), dormant, rank, full_rank)
