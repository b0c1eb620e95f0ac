"""A panel of two arms on two tasks, with runs whose numbers are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hadamard.experiments.paper import Arm, Panel
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import read_run
from hadamard.report.statistics.panel import PanelRuns
from tests.support.runs import measured, write_run

TANH, HR, RELU = Arm("tanh", "tanh"), Arm("tanh + HR", "tanh+hr"), Arm("ReLU", "relu")
TASKS = ("minatar/breakout", "minatar/asterix")
BUDGET = 1000
Scores = dict[str, dict[str, Sequence[Any]]]
"""By arm and task, for each seed: a score, or the scores of an unfinished run's episodes."""


def panel(**changes: Any) -> Panel:
    values = {
        "algorithm": "pqn", "tasks": TASKS, "seeds": 4, "steps": BUDGET, "normalization": "raw",
        "aggregations": ("mean", "median"), "arms": (TANH, HR),
    }  # fmt: skip
    return Panel(**{**values, **changes})


def run(folder: Path, seed: int, task: str, score: Any, dormant: float | None) -> RunData:
    finished = not isinstance(score, list)
    shares = (dormant and dormant / 2, dormant) if finished else ()
    health = [measured(share, 3.0, share) for share in shares]
    path = write_run(folder, seed, env=task, score=score, finished=finished, health=health)
    return read_run(path)


def panel_runs(
    folder: Path, scores: Scores, dormant: float | None = 0.5, **changes: Any
) -> PanelRuns:
    """Write the runs, and return them as a panel's."""
    runs = {
        arm: {
            task: [
                run(folder / f"{arm}-{task}-{seed}".replace("/", "-"), seed, task, score, dormant)
                for seed, score in enumerate(of_seeds)
            ]
            for task, of_seeds in tasks.items()
        }
        for arm, tasks in scores.items()
    }
    return PanelRuns(panel(**changes), BUDGET, runs)
