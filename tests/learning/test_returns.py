"""Returns against numbers computed by hand and published formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from hadamard.core.types import Step
from hadamard.learning.returns import (
    alive_before,
    discount_for_length,
    generalized_advantages,
    lambda_returns,
    multi_step_returns,
    successor_values,
)


def column(*values: float) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool).unsqueeze(1)


@pytest.mark.parametrize(
    ("terminated", "truncated", "next_values", "advantages", "returns"),
    [
        # delta = 1, 1.75, 2.5; A_2 = 2.5, A_1 = 1.75 + 2.5 / 4, A_0 = 1 + 2.375 / 4
        ((0, 0, 0), (0, 0, 0), (1.0, 1.5, 2.0), (1.59375, 2.375, 2.5), (2.09375, 3.375, 4.0)),
        # The task ends at step 1: delta_1 = 2 - 1, G_1 = 2, and later steps do not count.
        ((0, 1, 0), (0, 0, 0), (1.0, 1.5, 2.0), (1.25, 1.0, 2.5), (1.75, 2.0, 4.0)),
        # Step 1 is truncated at a state of value 4: delta_1 = 2 + 2 - 1, G_1 = 2 + 0.5 * 4.
        ((0, 0, 0), (0, 1, 0), (1.0, 4.0, 2.0), (1.75, 3.0, 2.5), (2.25, 4.0, 4.0)),
        # The rollout ends with the task: no bootstrap at all.
        ((0, 0, 1), (0, 0, 0), (1.0, 1.5, 2.0), (1.53125, 2.125, 1.5), (2.03125, 3.125, 3.0)),
    ],
)
def test_returns_by_hand(
    terminated: tuple[int, ...],
    truncated: tuple[int, ...],
    next_values: tuple[float, ...],
    advantages: tuple[float, ...],
    returns: tuple[float, ...],
) -> None:
    rewards, values = column(1.0, 2.0, 3.0), column(0.5, 1.0, 1.5)
    ends = flags(*terminated), flags(*truncated)
    following = column(*next_values)
    estimated = generalized_advantages(rewards, values, following, *ends, 0.5, 0.5)
    assert torch.equal(estimated, column(*advantages))
    assert torch.equal(lambda_returns(rewards, following, *ends, 0.5, 0.5), column(*returns))


@dataclass
class Steps:
    """Random steps of several environments, in float64."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @classmethod
    def random(cls, seed: int, steps: int = 40, envs: int = 5, truncate: bool = True) -> Steps:
        rng = np.random.default_rng(seed)
        shape = (steps, envs)
        terminated = rng.random(shape) < 0.15
        truncated = (rng.random(shape) < 0.15) & ~terminated & truncate
        values, last = rng.normal(size=shape), rng.normal(size=(1, envs))
        final = rng.normal(size=shape)
        next_values = np.where(truncated, final, np.concatenate([values[1:], last]))
        return cls(rng.normal(size=shape), values, next_values, terminated, truncated)

    def tensors(self, *names: str) -> list[Tensor]:
        return [torch.from_numpy(getattr(self, name)) for name in names]


@pytest.mark.parametrize("decay", [0.0, 0.65, 0.95, 1.0])
def test_returns_equal_forward_sums(decay: float) -> None:
    gamma, r = 0.9, Steps.random(1)
    steps, envs = r.rewards.shape
    alive = ~r.terminated
    advantages, returns = np.zeros((2, steps, envs))
    for env in range(envs):
        for start in range(steps):
            # Sum forward from each step until the trace ends.
            weight = 1.0
            for t in range(start, steps):
                one_step = r.rewards[t, env] + gamma * alive[t, env] * r.next_values[t, env]
                advantages[start, env] += weight * (one_step - r.values[t, env])
                if t == start:
                    returns[start, env] = one_step
                else:
                    returns[start, env] += weight * (one_step - r.next_values[t - 1, env])
                if not alive[t, env] or r.truncated[t, env]:
                    break
                weight *= gamma * decay
    names = ("rewards", "values", "next_values", "terminated", "truncated")
    computed = generalized_advantages(*r.tensors(*names), gamma, decay)
    np.testing.assert_allclose(computed.numpy(), advantages, rtol=1e-12, atol=1e-12)
    names = ("rewards", "next_values", "terminated", "truncated")
    computed = lambda_returns(*r.tensors(*names), gamma, decay)
    np.testing.assert_allclose(computed.numpy(), returns, rtol=1e-12, atol=1e-12)


def test_lambda_returns_equal_the_recursive_formula() -> None:
    # G_t = r_t + gamma (1 - d_t) [lambda G_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a)]
    gamma, decay, r = 0.99, 0.65, Steps.random(2, truncate=False)
    expected = np.zeros_like(r.rewards)
    next_return = r.next_values[-1]
    for t in reversed(range(len(expected))):
        mixed = decay * next_return + (1 - decay) * r.next_values[t]
        expected[t] = r.rewards[t] + gamma * (1 - r.terminated[t]) * mixed
        next_return = expected[t]
    names = ("rewards", "next_values", "terminated", "truncated")
    computed = lambda_returns(*r.tensors(*names), gamma, decay)
    np.testing.assert_allclose(computed.numpy(), expected, rtol=1e-12, atol=1e-12)
    # Without truncations an advantage is the return minus the value.
    names = ("rewards", "values", "next_values", "terminated", "truncated")
    advantages = generalized_advantages(*r.tensors(*names), gamma, decay)
    np.testing.assert_allclose(advantages.numpy() + r.values, expected, rtol=1e-12, atol=1e-12)


def test_a_truncated_steps_successor_is_its_final_observation() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    truncated = torch.tensor([[False, True], [True, False]])
    final = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    successors = successor_values(values, torch.tensor([5.0, 6.0]), truncated, final)
    assert successors.tolist() == [[3.0, -2.0], [-3.0, 6.0]]


def test_next_obs_is_the_true_successor_only_where_an_episode_ended() -> None:
    none = torch.zeros(3, dtype=torch.bool)
    obs = torch.tensor([[1.0], [2.0], [3.0]])
    assert Step(obs, obs[:, 0], none, none).next_obs is obs
    step = Step(obs, obs[:, 0], none, none, torch.tensor([2, 0]), torch.tensor([[30.0], [10.0]]))
    assert step.next_obs.tolist() == [[10.0], [2.0], [30.0]]
    assert step.obs.tolist() == [[1.0], [2.0], [3.0]]


def test_steps_up_to_and_including_an_end_are_alive() -> None:
    ends = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]]).bool()
    assert alive_before(ends).tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert alive_before(ends[:, :1]).tolist() == [[1]] * 4


def test_returns_of_several_steps_by_hand() -> None:
    reward = torch.tensor([[1.0, 2.0, 4.0]]).repeat(5, 1)
    ends = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]]).bool()
    returns, discount = multi_step_returns(reward, ends, 0.5)
    # The reward of the step that ends the task counts, later ones do not.
    assert returns.tolist() == [3.0, 1.0, 2.0, 3.0, 1.0]
    assert discount.tolist() == [0.125, 0.0, 0.0, 0.0, 0.0]
    returns, discount = multi_step_returns(reward[:, :1], ends[:, :1], 0.5)
    assert returns.tolist() == [1.0] * 5
    assert discount.tolist() == [0.5, 0.0, 0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(500, 0.99), (1000, 0.995), (5000, 0.995), (50, 0.95), (200, 0.975), (1, 0.95)],
)
def test_the_discounts_horizon_is_a_fifth_of_an_episode(steps: int, expected: float) -> None:
    assert discount_for_length(steps) == pytest.approx(expected)


def test_without_a_time_limit_there_is_no_such_discount() -> None:
    with pytest.raises(ValueError, match="no time limit to derive a discount from"):
        discount_for_length(0)
