"""DQN updates by its formula, at the right steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.agents import build_agent, recorded_batches, settings
from tests.support.formulas import HandAdam, exact, flat, forward, vector_agent


def test_dqns_update_is_the_formula() -> None:
    agent = vector_agent("dqn", learning_rate=0.01, adam_epsilon=1e-3, gamma=0.9)
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    target = exact(agent.target.parameters())
    adam = HandAdam(sum(p.numel() for p in target), epsilon=1e-3)
    for _ in range(3):
        obs, next_obs = torch.randn(2, 16, 3)
        action, reward = torch.randint(4, (16,)), torch.randn(16)
        terminated = torch.rand(16) < 0.4
        weights = exact(agent.network.parameters())
        best = forward(target, next_obs.double()).max(1).values
        expected_value = torch.where(
            terminated, reward.double(), reward.double() + 0.9 * best
        ).detach()
        chosen = forward(weights, obs.double())[torch.arange(16), action]
        loss = ((chosen - expected_value) ** 2).sum() / 16
        gradient = flat(torch.autograd.grad(loss, weights))
        expected = flat(weights) + adam.change(gradient, 0.01)
        metrics = agent.learn(obs, action, reward, terminated, next_obs)
        assert float(metrics["loss"]) == pytest.approx(loss.item(), rel=1e-5)
        weights_after = flat(agent.network.parameters())
        np.testing.assert_allclose(weights_after, expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(flat(agent.target.parameters()), flat(target))


def test_dqn_updates_at_the_right_steps() -> None:
    changes = {
        "algo.num_envs": 1,
        "algo.learning_starts": 20,
        "algo.update_period": 4,
        "algo.target_period": 10,
    }
    agent, env = build_agent("dqn", settings("dqn", "both", changes))
    assert isinstance(agent.network, torch.nn.Module)
    copies: list[int] = []
    load = agent.target.load_state_dict
    agent.target.load_state_dict = lambda state: (
        copies.append(agent.counters["steps"]) or load(state)
    )
    learned: list[int] = []
    agent.after_update = lambda updates, obs: learned.append(agent.counters["steps"])
    recorded_batches(agent, env, 50)
    assert learned == [24, 28, 32, 36, 40, 44, 48]
    assert copies == [30, 40, 50]
    assert agent.counters["updates"] == 7
