"""A seed decides everything, no row comes twice, and a run has its own precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hadamard.core import checkpoint
from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.training import start
from tests.support.agents import ALGORITHMS, settings
from tests.support.trainers import trainer_of


def run_rows(path: Path) -> dict[str, list[Any]]:
    streams = ("episodes", "train", "eval", "health", "kde")
    return {stream: list(Run.open(path).rows(stream)) for stream in streams}


def final_state(path: Path) -> Any:
    return checkpoint.read(checkpoint.newest(path / "checkpoints"))


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}/{i}")
    elif isinstance(ours, Tensor):
        assert torch.equal(ours, theirs), where
    elif isinstance(ours, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, where)
    else:
        assert ours == theirs, where


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_seed_decides_everything(algorithm: str, tmp_path: Path) -> None:
    runs = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        changes = {
            "seed": seed,
            "run_dir": str(tmp_path / name),
            "train.steps": 640,
            "train.log_every": 50,
            "train.health_samples": 64,
            "train.health_every": 200,
            "train.checkpoint_every": 200,
            "train.greedy_envs": 2,
            "train.tensorboard": False,
        }
        torch.manual_seed(len(runs))  # nothing may hang on the global state
        np.random.seed(len(runs))  # noqa: NPY002
        start.train(algorithm, settings(algorithm, "both", changes))
        runs.append((run_rows(tmp_path / name), final_state(tmp_path / name)))
    (rows, state), (same_rows, same_state), (other_rows, other_state) = runs
    assert rows == same_rows
    assert all(len(rows[stream]) >= 3 for stream in rows)
    assert_same(state, same_state)
    assert all(rows[stream] != other_rows[stream] for stream in ("episodes", "train", "health"))
    weights, others = (s[1]["agent.network"] for s in (state, other_state))
    assert all(not torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_row_comes_twice(algorithm: str, tmp_path: Path) -> None:
    # The last step is one at which a row is written anyway.
    steps = 512
    changes = {
        "run_dir": str(tmp_path / "run"),
        "train.steps": steps,
        "train.log_every": 128,
        "train.health_samples": 32,
        "train.health_every": 256,
        "train.checkpoint_every": 256,
        "train.tensorboard": False,
    }
    start.train(algorithm, settings(algorithm, "both", changes))
    rows = run_rows(tmp_path / "run")
    assert [row["step"] for row in rows["train"]] == [128, 256, 384, 512]
    assert [row["step"] for row in rows["health"]] == [256, 512]
    assert [row["step"] for row in rows["kde"]] == [256, 512]
    assert final_state(tmp_path / "run")[0] == steps


def test_precision_is_the_runs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "medium"  # by whoever trains
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: chosen)
    precisions: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", precisions.append)
    changes = {"run_dir": str(tmp_path / "run"), "train.tensorboard": False}
    spec = overridden(start.default_spec("pqn", "probe/both"), changes)
    with trainer_of("pqn", spec, tmp_path / "run"):
        assert not torch.backends.cudnn.benchmark  # this is a CPU
    assert torch.backends.cudnn.benchmark
    assert precisions == ["highest", chosen]
