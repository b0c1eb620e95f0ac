"""Fleets whose runs each play in their own environments: a state that cannot be divided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core.config import RunSpec
from hadamard.core.run import Run
from hadamard.envs.common import EnvironmentFailure
from hadamard.envs.probe import ProbeEnvs
from tests.support.fleets import assert_same_run, resume, rows_of, spec_of, train

SETTINGS = {"train.greedy_envs": 0, "train.steps": 600, "net.width": 8}


def run_of(folder: Path, seed: int) -> RunSpec[Any]:
    return spec_of("dqn", folder, seed, SETTINGS, env="probe/both")


def test_runs_together_are_the_runs_they_would_be_alone(tmp_path: Path) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    train("dqn", [run_of(path, seed) for seed, path in enumerate(paths)])
    for seed, path in enumerate(paths):
        train("dqn", [run_of(tmp_path / f"alone{seed}", seed)])
        assert "loss" in rows_of(path)["train"][-1]
        assert_same_run(path, tmp_path / f"alone{seed}")


def test_a_run_whose_games_fail_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    made: list[ProbeEnvs] = []
    create, receive = ProbeEnvs.__init__, ProbeEnvs.receive
    received: list[ProbeEnvs] = []

    def creating(self: ProbeEnvs, *arguments: Any, **options: Any) -> None:
        create(self, *arguments, **options)
        made.append(self)

    def receiving(self: ProbeEnvs) -> Any:
        step = receive(self)
        received.append(self)
        if self is made[1] and received.count(self) == 250:
            step.reward[0] = torch.nan
        return step

    with monkeypatch.context() as patch:
        patch.setattr(ProbeEnvs, "__init__", creating)
        patch.setattr(ProbeEnvs, "receive", receiving)
        with pytest.raises(EnvironmentFailure) as error:
            train("dqn", [run_of(path, seed) for seed, path in enumerate(paths)])
    assert str(error.value).startswith(f"{paths[1]}: at step ")
    assert "environment 0 of probe/both returned a reward of nan" in str(error.value)
    assert [Run.open(path).done is None for path in paths] == [False, True, False]
    resume(paths[1])
    assert Run.open(paths[1]).done is not None
