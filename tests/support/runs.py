"""Small run folders with given scores and health."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hadamard.core.run import Run
from hadamard.report.data.runs import load
from hadamard.report.data.sections import Section, sections

BUDGET = 1000


def write_run(
    folder: Path,
    seed: int = 0,
    layer: str = "plain",
    activation: str = "tanh",
    norm: str = "none",
    score: float | Sequence[float | None] | None = 1.0,
    health: Sequence[dict[str, float | None]] = (),
    *,
    algorithm: str = "pqn",
    env: str = "minatar/breakout",
    redo: bool = False,
    steps: int = BUDGET,
    finished: bool = True,
    snapshots: Sequence[int] = (),
    **settings: Any,
) -> Path:
    """Write a run whose episodes all score ``score``, or one episode for each of the scores."""
    spec: dict[str, Any] = {
        "env": env,
        "seed": seed,
        "run_dir": None,
        "device": "cpu",
        "algo": {"q_lambda": 0.65, "learning_rate": 0.001, "hidden": [64, 64]},
        "net": {"layer": layer, "activation": activation, "norm": norm, "width": 4},
        "train": {"steps": steps, "log_every": 10, "tensorboard": True},
        "remedy": "redo" if redo else "none",
        "remedies": {"redo": {"tau": 0.025}} if redo else {},
    }
    for name, value in settings.items():
        group, _, field = name.partition("_")
        spec[group][field] = value
    run = Run.create(folder, {"algorithm": algorithm, "spec": spec})
    scores = [score] * 10 if isinstance(score, float) else list(score or ())
    for number, value in enumerate(scores, start=1):
        row = {"step": number * steps // 10, "env": 0, "score": value, "length": 7}
        run.write("episodes", row)
    for number, layer_health in enumerate(health, start=1):
        layers = [{"name": "first", "effective_rank": 99}, {"name": "last", **layer_health}]
        row = {"step": number * steps // len(health), "threshold": 20.0, "delta": 0.01}
        run.write("health", {**row, "layers": layers})
    for step in snapshots:
        run.write("kde", densities(step))
    run.flush()
    if finished:
        run.finish({"steps": steps, "score": None, "seconds": 10.0})
    run.close()
    return folder


def measured(dormant: float | None, rank: float | None, hidden: float | None) -> dict[str, Any]:
    shares = {"live": None, "dormant": hidden, "bias": None}
    if hidden is not None:
        shares |= {"live": 0.9 - hidden, "bias": 0.1}
    return {
        "dormant_fraction": dormant,
        "effective_rank": rank,
        "full_rank": 4,
        "hidden_bias_share": hidden,
        **{f"{part}_contribution": share for part, share in shares.items()},
    }


def densities(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "layer": "last",
        "neurons": [0, 3],
        "places": [[-1.0, 0.0, 1.0]] * 2,
        "density": [[0.1, 1.0, 0.1], [0.0, 0.0, float("nan")]],
        "dormant": [False, True],
        "bounded": True,
        "title": "last: 1 of 4 neurons dormant",
    }


def only_section(folder: Path) -> Section:
    (section,) = sections(load([folder]))
    return section


def labels(folder: Path) -> list[str]:
    return [variant.label for variant in only_section(folder).variants]


def played_alongside(folder: Path, games: dict[int, float], **options: Any) -> Path:
    """Write a run whose greedy environments finished a game at each step."""
    write_run(folder, train_greedy_envs=8, **options)
    rows = [json.dumps({"step": step, "score": score}) for step, score in games.items()]
    (folder / "eval.jsonl").write_text("\n".join(rows) + "\n")
    return folder
