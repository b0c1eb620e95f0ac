"""PPO with vectors of actions: what is drawn and learned, normalization, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.learning.normalize import LARGEST, RewardScaler
from hadamard.training import start
from hadamard.training.load_agent import load_agent
from tests.support.agents import build_agent, play, settings
from tests.support.commands import Command
from tests.support.resume import assert_same_run

SIGNS = torch.tensor([[-1.0], [1.0]])
QUICK = {
    "algo.normalize": True,
    "train.steps": 12_000,
    "algo.entropy_coefficient": 0.0,
    "algo.gamma": 0.9,
}


@pytest.mark.parametrize("task", ["steer", "track"])
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_the_best_action_is_found(task: str, layer: str) -> None:
    spec = settings("ppo", task, {**QUICK, "net.layer": layer, "net.activation": "tanh"})
    agent, env = build_agent("ppo", spec)
    play(agent, env, spec.train.steps // agent.num_envs)
    torch.testing.assert_close(
        agent.act_greedily(SIGNS), SIGNS / 2 * torch.ones(1, 2), rtol=0, atol=0.15
    )
    deviation = agent.network.log_deviation.exp()  # type: ignore[union-attr]
    assert (deviation < 0.6).all()  # from 1


def test_what_is_drawn_beyond_the_limits_is_learned_from() -> None:
    spec = settings("ppo", "steer", {"algo.num_envs": 64, "algo.rollout_steps": 4})
    agent: Any
    agent, env = build_agent("ppo", spec)
    obs = env.reset()
    action, extra = agent.act(obs, 0)
    drawn = extra["action"]
    assert (drawn.abs() > 1).any()
    assert torch.equal(action, drawn.clamp(-1, 1))
    agent.observe(obs, action, extra, env.step(action))
    assert torch.equal(agent.rollout.data["action"][0], drawn)
    parameters, _ = agent.network(obs)
    again, _ = agent.policy.log_probability_and_entropy(parameters, drawn)
    torch.testing.assert_close(again, extra["log_probability"])


def test_the_policy_that_acted_is_learned_from_although_statistics_move() -> None:
    spec = settings("ppo", "steer", {"algo.normalize": True, "algo.minibatches": 1})
    agent: Any
    agent, env = build_agent("ppo", spec)
    clipped = []
    learn = agent.learn
    agent.learn = lambda *batch: (
        clipped.append(float(agent.loss(*batch)[1]["clipped"])) or learn(*batch)
    )
    before = agent.network.normalizer.count.clone()
    play(agent, env, 3 * agent.rollout.steps)
    assert agent.network.normalizer.count > before + agent.num_envs
    first_updates = clipped[:: agent.config.epochs]
    assert len(first_updates) == 3
    assert first_updates == [0.0, 0.0, 0.0]


def test_a_rollout_of_rewards_by_hand() -> None:
    scaler = RewardScaler(1, 0.5)
    reward, done = torch.tensor([[2.0], [4.0], [100.0]]), torch.tensor([[False], [True], [False]])
    scaled = scaler.scaled_rollout(reward, done)
    returns = torch.tensor([2.0, 4.0, 102.0], dtype=torch.float64)
    # The last reward of an episode starts the sum that the next episode adds to, as published.
    assert scaler.returns.item() == 0.5 * 4 + 100
    deviation = returns.std(unbiased=False)
    torch.testing.assert_close(
        scaled[:2, 0].double(), reward[:2, 0].double() / deviation, rtol=1e-3, atol=0
    )
    assert RewardScaler(1, 0.5).scaled_rollout(1e-3 * reward, done).abs().max() <= LARGEST


def test_a_fleet_does_not_take_it() -> None:
    from hadamard.training import fleet

    spec = overridden(start.default_spec("ppo", "minatar/breakout"), {"algo.normalize": True})
    assert "--algo.normalize" in (fleet.obstacle("ppo", spec) or "")


def test_resumed_equals_uninterrupted(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    words = ["--env", "gym/Pendulum-v1", "--train.steps", "1500", "--algo.rollout-steps", "50"]
    words += ["--algo.num-envs", "3", "--algo.minibatches", "5", "--train.log-every", "100"]
    words += ["--train.health-every", "0", "--train.no-tensorboard"]
    for name, more in (("whole", []), ("parts", ["--train.until", "600"])):
        done = command("train", "ppo", "--run-dir", tmp_path / name, *words, *more)
        assert done.code == 0, done.err
    done = command("train", "--resume", tmp_path / "parts", "--until", "0")
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    assert Run.open(str(tmp_path / "parts")).done is not None
    agent, *_ = load_agent(str(tmp_path / "parts"), "cpu")
    assert agent.network.normalizer.count > 1_000  # type: ignore[union-attr]
