"""The observations that the diagnosis during training sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hadamard.core.config import TrainSpec
from hadamard.training.health_stream import RecentObservations
from tests.support.commands import Command


def test_a_short_run_is_diagnosed_at_its_end(command: Command, tmp_path: Path) -> None:
    words = ["train", "ppo", "--env", "probe/both", "--run-dir", str(tmp_path / "run")]
    assert command(*words, "--train.steps", "3072", "--train.no-tensorboard").code == 0
    (row,) = map(json.loads, (tmp_path / "run" / "health.jsonl").read_text().splitlines())
    assert (row["step"], row["observations"]) == (3072, 2048)


CPU = torch.device("cpu")


@pytest.mark.parametrize("num_envs", [1, 8, 100])
def test_the_diagnosis_sees_the_last_observations_before_it(num_envs: int) -> None:
    every, count = 90, 30
    train = TrainSpec(health_every=every, health_samples=count)
    recent, step, collected, diagnoses = RecentObservations(train, CPU), 0, torch.empty(0), 0
    while diagnoses < 5:
        obs = torch.arange(step, step + num_envs)
        collected = torch.cat([collected, obs])
        recent.add(step, obs)
        step += num_envs
        if step == 2 * num_envs:  # a resume in between changes nothing
            state = recent.state_dict()
            recent = RecentObservations(train, CPU)
            recent.load_state_dict(state)
        if step // every > (step - num_envs) // every:
            assert torch.equal(recent.take(), collected[-count:])
            diagnoses += 1
