"""PQN updates by its formula, and its learning rate and exploration follow their schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.agents import build_agent, recorded_batches, settings
from tests.support.formulas import HandAdam, clipped, exact, flat, forward, vector_agent


@pytest.mark.parametrize("largest", [0.05, 100.0])
def test_pqns_update_is_the_formula(largest: float) -> None:
    agent = vector_agent("pqn", learning_rate=0.01, max_grad_norm=largest)
    radam = None
    for _ in range(8):  # RAdam's first five steps are of another kind
        obs, action = torch.randn(16, 3), torch.randint(4, (16,))
        returns = 2 * torch.randn(16)
        weights = exact(agent.network.parameters())
        chosen = forward(weights, obs.double())[torch.arange(16), action]
        loss = 0.5 * ((chosen - returns.double()) ** 2).sum() / 16
        gradient = flat(torch.autograd.grad(loss, weights))
        radam = radam or HandAdam(len(gradient), epsilon=1e-8, rectified=True)
        expected = flat(weights) + radam.change(clipped(gradient, largest), 0.01)
        metrics = agent.learn(obs, action, returns)
        assert float(metrics["loss"]) == pytest.approx(loss.item(), rel=1e-5)
        assert float(metrics["gradient_norm"]) == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
        weights_after = flat(agent.network.parameters())
        np.testing.assert_allclose(weights_after, expected, rtol=0, atol=2e-6)


def test_pqns_last_update_has_a_rate_where_rollouts_do_not_divide_the_steps() -> None:
    changes = {"algo.num_envs": 4, "algo.rollout_steps": 5, "algo.minibatches": 2}
    agent: Any = build_agent("pqn", settings("pqn", "both", {**changes, "train.steps": 90}))[0]
    agent.counters["updates"] = agent.total_updates - 1  # of the fifth rollout, at step 100
    assert agent.total_updates == 20
    assert agent.learning_rate(agent.counters["updates"]) == pytest.approx(agent.config.learning_rate / 20)


def test_pqns_exploration_falls_from_rollout_to_rollout() -> None:
    changes = {
        "algo.num_envs": 4,
        "algo.rollout_steps": 5,
        "algo.minibatches": 2,
        "algo.epsilon_fraction": 0.5,
        "algo.epsilon_final": 0.2,
        "train.steps": 200,
    }
    agent, env = build_agent("pqn", settings("pqn", "both", changes))
    epsilons: list[float] = []
    act = agent.act

    def act_and_record(obs: torch.Tensor, step: int) -> Any:
        epsilons.append(agent.epsilon(step))
        return act(obs, step)

    agent.act = act_and_record  # type: ignore[method-assign]
    recorded_batches(agent, env, 50)
    # Half of 10 rollouts, 5 steps each.
    per_rollout = [1.0, 0.84, 0.68, 0.52, 0.36, *[0.2] * 5]
    assert epsilons == pytest.approx([epsilon for epsilon in per_rollout for _ in range(5)])
