"""Relearning: how well the networks of kept checkpoints learn something new, beside their health.

Each network is fine-tuned on two targets for a fixed number of updates: random targets on its own
observations, and the returns of another game. What it had learned at the end, and what its measures
were before, go to ``relearning.json`` in the run's folder. Networks of one shape learn together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hadamard.core import machine
from hadamard.core.files import RunError, is_file, read_json, write_atomically
from hadamard.core.typed import checked
from hadamard.text import counted
from hadamard.training.relearning import targets
from hadamard.training.relearning.budget import Budget
from hadamard.training.relearning.fine_tuning import fine_tune
from hadamard.training.relearning.measures import measure
from hadamard.training.relearning.networks import Group, SavedNetwork, groups

__all__ = ["FILE", "Budget", "is_done", "relearn"]

FILE = "relearning.json"
_FORMAT = "hadamard relearning 1"
_TOGETHER = {"cpu": 16, "cuda": 128}
"""Networks that learn as one computation."""


def relearn(
    runs: Sequence[str | Path],
    budget: Budget,
    device_name: str = "auto",
    *,
    again: bool = False,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Let the networks of finished runs relearn, and write each run's file.

    Runs that have the results of this budget already are left as they are, unless ``again``.
    Returns messages about what was left out.
    """
    budget.check()
    device = machine.choose_device(device_name)
    paths = [Path(run) for run in runs]
    open_runs = paths if again else [path for path in paths if not is_done(path, budget)]
    if len(open_runs) < len(paths):
        say(f"{counted(len(paths) - len(open_runs), 'run')} done before")
    problems: list[str] = []
    rows: dict[Path, list[dict[str, Any]]] = {}
    for group in groups(open_runs, budget.checkpoints, device, problems):
        other = targets.other_task(group.env, group.spec, device)
        for part in _parts(group, _TOGETHER.get(device.type, 16)):
            say(f"{group.algorithm} on {group.env}: {counted(len(part), 'network')}")
            for saved, row in zip(part, _rows(part, group, budget, other, device), strict=True):
                if isinstance(row, str):
                    problems.append(f"{saved.path} at step {saved.step:,}: {row}")
                else:
                    rows.setdefault(saved.path, []).append({"step": saved.step, **row})
                    _write(saved.path, budget, other, rows[saved.path])
    return problems


def is_done(path: Path, budget: Budget) -> bool:
    """Tell whether a run has the results of this budget; a file that cannot be read has none."""
    file = path / FILE
    try:
        if not is_file(file):
            return False
        values = read_json(file)
        return values.get("budget") == asdict(budget) and bool(
            checked(values.get("rows"), list, "")
        )
    except (OSError, ValueError, RunError):
        return False


def _parts(group: Group, size: int) -> Iterator[list[SavedNetwork]]:
    for start in range(0, len(group.saved), size):
        yield group.saved[start : start + size]


def _rows(
    part: list[SavedNetwork], group: Group, budget: Budget, other: str | None, device: torch.device
) -> list[dict[str, Any] | str]:
    """Return each network's measures and what it learned, or why there is nothing to say."""
    networks = [saved.network for saved in part]
    obs = targets.own_observations(networks, group.env, budget.observations, device)
    measures = measure(networks, obs)
    random = targets.random_targets(obs, group.spec.pixel_scale)
    learned = {"random": fine_tune(networks, obs, random, budget)}
    if other is not None:
        frames, returns = targets.returns_of(other, group.spec, budget.observations, device)
        count = len(networks)
        learned["other"] = fine_tune(
            networks,
            frames.expand(count, *frames.shape),
            returns.expand(count, *returns.shape),
            budget,
        )
    return [
        own
        if isinstance(own, str)
        else {"measures": own, "learned": {name: values[i] for name, values in learned.items()}}
        for i, own in enumerate(measures)
    ]


def _write(path: Path, budget: Budget, other: str | None, rows: list[dict[str, Any]]) -> None:
    values = {
        "format": _FORMAT,
        "budget": asdict(budget),
        "other_task": other,
        "rows": sorted(rows, key=lambda row: row["step"]),
    }
    write_atomically(path / FILE, json.dumps(values, allow_nan=False) + "\n")
