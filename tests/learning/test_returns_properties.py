"""Returns and running statistics equal plain Python loops, whatever the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hadamard.learning.normalize import EPSILON, INITIAL_COUNT, RewardScaler, RunningMoments
from hadamard.learning.returns import (
    alive_before,
    generalized_advantages,
    lambda_returns,
    multi_step_returns,
    successor_values,
)

NUMBERS = st.floats(-100, 100, allow_subnormal=False)
SHARES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


@dataclass
class Rollout:
    """Lists of one environment's steps; ``value`` has one entry more, for the last successor."""

    reward: list[float]
    value: list[float]
    final_value: list[float]
    terminated: list[bool]
    truncated: list[bool]

    def next_value(self, t: int) -> float:
        return self.final_value[t] if self.truncated[t] else self.value[t + 1]

    def advantage(self, t: int, gamma: float, gae_lambda: float) -> float:
        """Sum the discounted errors of all steps from ``t`` to the end of the episode."""
        total, weight = 0.0, 1.0
        for i in range(t, len(self.reward)):
            successor = 0.0 if self.terminated[i] else gamma * self.next_value(i)
            total += weight * (self.reward[i] + successor - self.value[i])
            if self.terminated[i] or self.truncated[i]:
                break
            weight *= gamma * gae_lambda
        return total

    def lambda_return(self, t: int, gamma: float, q_lambda: float) -> float:
        if self.terminated[t]:
            return self.reward[t]
        later = self.next_value(t)
        if not self.truncated[t] and t + 1 < len(self.reward):
            following = self.lambda_return(t + 1, gamma, q_lambda)
            later = q_lambda * following + (1 - q_lambda) * later
        return self.reward[t] + gamma * later


@st.composite
def rollouts(draw: st.DrawFn) -> list[Rollout]:
    envs, steps = draw(st.integers(1, 3)), draw(st.integers(1, 12))

    def numbers(count: int) -> list[float]:
        return draw(st.lists(NUMBERS, min_size=count, max_size=count))

    def rollout() -> Rollout:
        ends = st.sampled_from(["", "", "terminated", "truncated"])
        end = draw(st.lists(ends, min_size=steps, max_size=steps))
        terminated, truncated = ([e == kind for e in end] for kind in ("terminated", "truncated"))
        return Rollout(numbers(steps), numbers(steps + 1), numbers(steps), terminated, truncated)

    return [rollout() for _ in range(envs)]


def columns(rows: list[list[float]] | list[list[bool]]) -> Tensor:
    """Return one column for each environment, in double precision where they are numbers."""
    tensor = torch.tensor(rows).T
    return tensor if tensor.dtype == torch.bool else torch.tensor(rows, dtype=torch.float64).T


@given(rollouts(), SHARES, SHARES)
def test_advantages_and_lambda_returns_equal_loops(
    envs: list[Rollout], gamma: float, share: float
) -> None:
    reward = columns([env.reward for env in envs])
    values = columns([env.value for env in envs])
    final = columns([env.final_value for env in envs])
    ends = columns([env.terminated for env in envs]), columns([env.truncated for env in envs])
    next_values = successor_values(values[:-1], values[-1], ends[1], final)
    advantages = generalized_advantages(reward, values[:-1], next_values, *ends, gamma, share)
    returns = lambda_returns(reward, next_values, *ends, gamma, share)
    for i, env in enumerate(envs):
        for t in range(len(env.reward)):
            assert next_values[t, i].item() == env.next_value(t)
            expected = env.advantage(t, gamma, share)
            assert advantages[t, i].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
            expected = env.lambda_return(t, gamma, share)
            assert returns[t, i].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@st.composite
def subsequences(draw: st.DrawFn) -> tuple[list[list[float]], list[list[bool]]]:
    draws, steps = draw(st.integers(1, 4)), draw(st.integers(1, 8))

    def rows(element: st.SearchStrategy) -> list[list]:
        row = st.lists(element, min_size=steps, max_size=steps)
        return draw(st.lists(row, min_size=draws, max_size=draws))

    return rows(NUMBERS), rows(st.sampled_from([False, False, True]))


@given(subsequences(), SHARES)
def test_returns_of_several_steps_equal_a_loop(
    batch: tuple[list[list[float]], list[list[bool]]], gamma: float
) -> None:
    rewards, ends = batch
    returns, discount = multi_step_returns(
        torch.tensor(rewards, dtype=torch.float64), torch.tensor(ends), gamma
    )
    alive = alive_before(torch.tensor(ends))
    for i, (reward, end) in enumerate(zip(rewards, ends, strict=True)):
        total, weight, ended = 0.0, 1.0, False
        for t in range(len(reward)):
            assert alive[i, t].item() == (not ended)
            if not ended:
                total += weight * reward[t]
                weight *= gamma
                ended = end[t]
        # Discounts are single precision.
        assert returns[i].item() == pytest.approx(total, rel=1e-5, abs=1e-4)
        assert discount[i].item() == pytest.approx(0 if ended else weight, rel=1e-5, abs=1e-7)


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=5), min_size=1, max_size=10))
def test_running_moments_equal_those_of_all_samples(chunks: list[list[float]]) -> None:
    moments = RunningMoments(())
    for chunk in chunks:
        moments.update(torch.tensor(chunk, dtype=torch.float64))
    samples = [number for chunk in chunks for number in chunk]
    count = len(samples) + INITIAL_COUNT
    mean = sum(samples) / count  # the initial mean is 0
    squares = sum((number - mean) ** 2 for number in samples)
    variance = (squares + INITIAL_COUNT * (1 + mean**2)) / count
    assert moments.count.item() == pytest.approx(count)
    assert moments.mean.item() == pytest.approx(mean, rel=1e-9, abs=1e-9)
    assert moments.variance.item() == pytest.approx(variance, rel=1e-9, abs=1e-9)


@given(
    st.lists(st.tuples(NUMBERS, st.booleans()), min_size=1, max_size=20),
    st.floats(0, 0.99),
    st.floats(0.5, 10),
)
def test_scaled_rewards_equal_a_loop(
    steps: list[tuple[float, bool]], gamma: float, limit: float
) -> None:
    scaler, moments = RewardScaler(1, gamma, limit), RunningMoments(())
    running = largest = 0.0
    for reward, done in steps:
        scaler.update(torch.tensor([reward], dtype=torch.float64), torch.tensor([done]))
        running = reward + (0.0 if done else gamma * running)
        largest = max(largest, abs(running))
        moments.update(torch.tensor([running], dtype=torch.float64))
    divisor = max(math.sqrt(moments.variance.item() + EPSILON), largest / limit)
    scaled = scaler(torch.tensor([3.0], dtype=torch.float64)).item()
    assert scaled == pytest.approx(3.0 / divisor, rel=1e-6)
