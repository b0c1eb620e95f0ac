"""The observations that the diagnosis during training sees."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from hadamard.core.config import NetSpec, TrainSpec
from hadamard.core.types import EnvSpec
from hadamard.nets.heads import ActorCritic
from hadamard.training.health_stream import (
    RecentObservations,
    examine,
    examine_together,
    health_row,
)
from tests.support.commands import Command
from tests.support.health import assert_same_health


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


@pytest.mark.parametrize("which", ["last", "all"])
@pytest.mark.parametrize(
    "net",
    [
        NetSpec(),
        NetSpec("hadamard", "tanh"),
        NetSpec("crelu"),
        NetSpec("hadamard2", "elu", norm="layer"),
    ],
    ids=lambda net: net.layer,
)
def test_networks_examined_together_have_the_health_that_they_have_alone(
    net: NetSpec, which: str
) -> None:
    train = TrainSpec(health_layers=which)
    env = EnvSpec((4, 10, 10), torch.bool, num_actions=3)
    networks = [ActorCritic(env, dataclasses.replace(net, width=48)) for _ in range(4)]
    for index, network in enumerate(networks):
        torch.nn.init.constant_(network.encoder.layers[-1].affine.bias[: 5 * index], 20.0)
    observations = [torch.rand(200, 4, 10, 10) < 0.1 for _ in networks]
    seeds, step = [3, 1, 4, 1], 700
    together = examine_together(networks, observations, train, seeds, step)
    for i, report in enumerate(together):
        expected = examine(networks[i], observations[i], train, seeds[i], step)
        assert_same_health(report, expected)
        assert health_row(report)["representation"] == health_row(expected)["representation"]
    torch.nn.init.constant_(networks[2].value.weight, float("nan"))
    failures = examine_together(networks, observations, train, seeds, step)
    assert [isinstance(report, ValueError) for report in failures] == [False, False, True, False]
    assert_same_health(failures[3], together[3])
    with pytest.raises(ValueError, match="Linear returns NaN") as error:
        examine(networks[2], observations[2], train, seeds[2], step)
    assert str(failures[2]) == str(error.value)
