"""PPO and PQN learn from whole rollouts, in minibatches, at a falling learning rate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hadamard.core.types import Step
from tests.support.agents import build_agent, recorded_batches, settings


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_each_pass_sees_every_step_once(algorithm: str) -> None:
    changes = {"algo.num_envs": 4, "algo.rollout_steps": 6, "algo.minibatches": 3, "algo.epochs": 2}
    agent, env = build_agent(algorithm, settings(algorithm, "both", changes))
    env.receive_step, count = env.step, iter(range(10_000))

    def numbered_step(action: Tensor) -> Step:
        step = env.receive_step(action)
        return Step(
            torch.tensor([[float(next(count))] for _ in range(4)]),
            step.reward,
            step.terminated,
            step.truncated,
        )

    env.step = numbered_step
    batches = recorded_batches(agent, env, 12)
    assert len(batches) == 2 * 2 * 3
    assert all(len(batch[0]) == 8 for batch in batches)
    second = [torch.cat([b[0] for b in batches[i : i + 3]]) for i in (6, 9)]
    for one_pass in second:
        # Observations 20 to 43 were acted on in the second rollout.
        assert sorted(one_pass.flatten().tolist()) == list(range(20, 44))
    assert not torch.equal(*second)


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_the_learning_rate_falls_linearly_to_zero(algorithm: str) -> None:
    changes = {
        "algo.num_envs": 4,
        "algo.rollout_steps": 5,
        "algo.minibatches": 2,
        "algo.learning_rate": 0.01,
        "train.steps": 100,
    }
    agent, env = build_agent(algorithm, settings(algorithm, "both", changes))
    rates: list[float] = []
    agent.after_update = lambda updates, obs: rates.append(agent.optimizer.param_groups[0]["lr"])
    recorded_batches(agent, env, 25)
    per_rollout = 2 * agent.config.epochs
    # PPO's with every rollout, as CleanRL's; PQN's with every update, as the JAX release's.
    updates = range(5 * per_rollout)
    done = [i // per_rollout / 5 if algorithm == "ppo" else i / len(updates) for i in updates]
    assert rates == pytest.approx([0.01 * (1 - part) for part in done], rel=1e-12)


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_minibatches_that_do_not_divide_a_rollout_are_refused(algorithm: str) -> None:
    changes = {"algo.num_envs": 4, "algo.rollout_steps": 5, "algo.minibatches": 3}
    with pytest.raises(ValueError, match=r"--algo.minibatches 3 does not divide .* 4 .* 5 .* 20"):
        build_agent(algorithm, settings(algorithm, "both", changes))
