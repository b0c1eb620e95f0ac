"""The observations that the diagnosis during training sees."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from hadamard import load_runs
from hadamard.core.config import NetSpec, TrainSpec
from hadamard.core.types import EnvSpec
from hadamard.health import update_ratio, weights_of
from hadamard.nets.heads import ActorCritic
from hadamard.training.health_stream import (
    Earlier,
    RecentObservations,
    examine,
    examine_together,
    health_row,
)
from tests.support.commands import Command, small
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
    with pytest.raises(ValueError, match="Head returns NaN") as error:
        examine(networks[2], observations[2], train, seeds[2], step)
    assert str(failures[2]) == str(error.value)


def test_the_weights_that_changes_compare_reach_over_a_rollout() -> None:
    train = TrainSpec(health_every=90, health_samples=10, measures="update")
    recent = RecentObservations(train, CPU, rollout=40)
    network = torch.nn.Linear(1, 1)
    for step in range(0, 90, 5):
        torch.nn.init.constant_(network.weight, step)
        recent.add_weights(step, 5, network, updates=2 * step)
        if step == 60:  # a resume in between changes nothing
            state = recent.state_dict()
            recent = RecentObservations(train, CPU, rollout=40)
            recent.load_state_dict(state)
    earlier = recent.take_weights(updates=180)
    assert earlier is not None
    assert float(earlier.weights["weight"]) == 45  # 40 steps back, and those of one more call
    assert earlier.updates == 90
    assert recent.take_weights(updates=180) is None
    unchosen = RecentObservations(TrainSpec(health_every=90, health_samples=10), CPU)
    unchosen.add_weights(85, 5, network, updates=1)
    assert unchosen.take_weights(updates=2) is None


def test_a_run_records_the_measures_it_chose(command: Command, tmp_path: Path) -> None:
    for algorithm, continuous in (("dqn", False), ("ppo", False), ("simbav2", True)):
        plain, chosen = tmp_path / algorithm / "plain", tmp_path / algorithm / "chosen"
        assert command(*small(algorithm, plain)).code == 0
        assert command(*small(algorithm, chosen, {"--train.measures": "all"})).code == 0
        rows = [
            [json.loads(line) for line in (path / "health.jsonl").read_text().splitlines()]
            for path in (plain, chosen)
        ]
        for before, after in zip(*rows, strict=True):
            keys = {"gradient_norm", "update_ratio", "value_churn", "ntk_rank", "updates"}
            keys |= set() if continuous else {"policy_churn"}
            assert set(after["network"]) == {"weight_norm"} | keys
            share = after["layers"][0].pop("gradient_dormant_fraction")
            # SimbaV2's layers are none of PyTorch's, and which weights are a neuron's is not known.
            assert share is None if continuous else 0 <= share <= 1
            assert before["layers"][0].pop("gradient_dormant_fraction") is None
            # Choosing more measures changes neither the others nor training.
            assert before["network"] == {"weight_norm": after["network"]["weight_norm"]}
            assert before["layers"] == after["layers"]
        last = rows[1][-1]["network"]
        assert last["updates"] > 0
        assert last["update_ratio"] > 0
        (run,) = load_runs(chosen)
        assert run.final("update_ratio") == pytest.approx(last["update_ratio"], rel=1e-6)
        assert run.final("stable_rank") >= 1


def test_the_fleet_compares_the_same_weights(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run"
    settings = {"--env": "minatar/breakout", "--train.fleet": "on", "--train.measures": "update"}
    assert command(*small("pqn", path, settings)).code == 0
    rows = [json.loads(line) for line in (path / "health.jsonl").read_text().splitlines()]
    # Blocks of 16 steps and 4 updates; 32 observations and the block reach back over 3 blocks.
    assert [row["network"]["updates"] for row in rows] == [12.0] * len(rows)
    assert all(0 < row["network"]["update_ratio"] < 1 for row in rows)


def test_examining_with_earlier_weights() -> None:
    network = ActorCritic(EnvSpec((3,), torch.float32, num_actions=2), NetSpec(width=8))
    train = TrainSpec(measures="update")
    before = weights_of(network)
    with torch.no_grad():
        network.value.weight += 1
    diagnosis = examine(network, torch.randn(20, 3), train, 0, 0, earlier=Earlier(before, 7))
    earlier = [before[name] for name, _ in network.named_parameters()]
    assert diagnosis.network["update_ratio"] == update_ratio(earlier, network.parameters())
    assert diagnosis.network["updates"] == 7


def test_an_unknown_measure_is_refused_before_a_folder_is_made(
    command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    result = command(*small("pqn", path, {"--train.measures": "churn,gradiant"}))
    assert result.code == 2
    assert "--train.measures churn,gradiant: unknown measure 'gradiant'" in result.err
    assert "did you mean 'gradient'?" in result.err
    assert not path.exists()
