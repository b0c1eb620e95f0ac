"""A run that diverges in a fleet is reported and set aside; the others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core import checkpoint
from hadamard.core.run import Run
from hadamard.training import start
from hadamard.training.fit import GpuFailure
from hadamard.training.fleet.fleet import Fleet
from hadamard.training.outcomes import Diverged, Interrupted
from tests.support.commands import checkpoint_names
from tests.support.fleets import (
    ALGORITHMS,
    assert_same_run,
    resume,
    rows_of,
    spec_of,
    stopping_at,
    train,
)

TOO_LARGE = {"algo.learning_rate": 1e30}


def assert_only_good_checkpoints(path: Path) -> None:
    for name in checkpoint_names(path):
        _, state = checkpoint.read(path / "checkpoints" / name)
        assert all(weight.isfinite().all() for weight in state["agent.network"].values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_diverges_does_not_stop_those_beside_it(
    algorithm: str, alone: Callable[[str, int], Path], tmp_path: Path
) -> None:
    paths = [tmp_path / f"seed{seed}" for seed in range(3)]
    changes: list[dict[str, Any]] = [{}, TOO_LARGE, {}]
    specs = [
        spec_of(algorithm, path, seed, own)
        for seed, (path, own) in enumerate(zip(paths, changes, strict=True))
    ]
    with pytest.raises(Diverged, match=f"{algorithm} diverged") as error:
        train(algorithm, specs)
    assert str(error.value).count("diverged") == 1
    assert not (paths[1] / "DONE").exists()
    assert_only_good_checkpoints(paths[1])
    assert f"no checkpoint was written to {paths[1]}" in str(error.value)
    for seed in (0, 2):
        assert_same_run(paths[seed], alone(algorithm, seed))


def test_all_runs_of_a_fleet_may_diverge(tmp_path: Path) -> None:
    specs = [spec_of("pqn", tmp_path / str(seed), seed, TOO_LARGE) for seed in range(2)]
    with pytest.raises(Diverged) as error:
        train("pqn", specs)
    assert str(error.value).count("pqn diverged") == 2
    for seed in range(2):
        assert f"{tmp_path / str(seed)}/" in str(error.value)
        assert not (tmp_path / str(seed) / "DONE").exists()


@pytest.mark.parametrize("algorithm", ["dqn", "pqn"])
def test_a_run_that_diverges_later_keeps_its_last_good_checkpoint(
    algorithm: str,
    alone: Callable[[str, int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [tmp_path / f"seed{seed}" for seed in range(2)]
    queue = Fleet._queue

    def losing(self: Fleet, *block: Any) -> Any:
        if checkpoint_names(paths[0]):
            with torch.no_grad():
                next(self.trainers[0].agent.network.parameters()).fill_(torch.nan)
        return queue(self, *block)

    specs = [spec_of(algorithm, path, seed) for seed, path in enumerate(paths)]
    with monkeypatch.context() as patch:
        patch.setattr(Fleet, "_queue", losing)
        with pytest.raises(Diverged) as error:
            train(algorithm, specs)
    (good,) = checkpoint_names(paths[0])
    assert f"the last good checkpoint is {paths[0] / 'checkpoints' / good}" in str(error.value)
    assert_only_good_checkpoints(paths[0])
    assert_same_run(paths[1], alone(algorithm, 1))
    resume(paths[0])
    assert_same_run(paths[0], alone(algorithm, 0))


def test_a_fleet_that_is_stopped_saves_the_runs_beside_one_that_diverged(
    alone: Callable[[str, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was due before the stop, so nobody had looked at the weights."""
    never = {"train.health_every": 0, "train.checkpoint_every": 0, "train.log_every": 10_000}
    paths = [tmp_path / f"seed{seed}" for seed in range(2)]
    specs = [
        spec_of("pqn", paths[0], 0, {**never, **TOO_LARGE}),
        spec_of("pqn", paths[1], 1, never),
    ]
    with monkeypatch.context() as patch:
        stopping_at(60, patch)
        with pytest.raises(Interrupted) as stopped:
            train("pqn", specs)
    assert stopped.value.args == (str(paths[1]),)
    assert not checkpoint_names(paths[0])
    assert start.trained_steps(Run.open(paths[1])) >= 60
    with pytest.raises(Diverged, match=f"no checkpoint was written to {paths[0]}"):
        resume(*paths)
    assert rows_of(paths[1])["episodes"] == rows_of(alone("pqn", 1))["episodes"]


def test_a_fleet_that_is_stopped_when_all_runs_diverged_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"train.health_every": 0, "train.checkpoint_every": 0, "train.log_every": 10_000}
    stopping_at(60, monkeypatch)
    with pytest.raises(Diverged, match="pqn diverged"):
        train("pqn", [spec_of("pqn", tmp_path / "run", 0, {**changes, **TOO_LARGE})])
    assert not checkpoint_names(tmp_path / "run")


def test_what_is_saved_is_named_when_the_gpu_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"seed{seed}" for seed in range(2)]
    queue = Fleet._queue

    def failing(self: Fleet, *block: Any) -> Any:
        if checkpoint_names(paths[1]):
            raise RuntimeError("CUDA error: unspecified launch failure\nmore lines")
        return queue(self, *block)

    with monkeypatch.context() as patch:
        patch.setattr(Fleet, "_queue", failing)
        with pytest.raises(GpuFailure) as error:
            train("pqn", [spec_of("pqn", path, seed) for seed, path in enumerate(paths)])
    assert "the GPU failed: CUDA error: unspecified launch failure." in str(error.value)
    for path in paths:
        assert f"hadamard train --resume {path} (from step " in str(error.value)
        resume(path)
        assert Run(path).done is not None
