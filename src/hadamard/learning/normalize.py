"""Running statistics of observations and rewards, in double precision.

They are modules, saved and moved with the network, and updated in place: a captured graph can read
and write them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

EPSILON = 1e-8
INITIAL_COUNT = 1e-4
"""The number of samples that the initial mean 0 and variance 1 count as."""
LARGEST = 10.0
"""Where PPO's normalized observations and scaled rewards are cut off."""


class RunningMoments(nn.Module):
    """Mean and variance of all samples so far.

    A float32 cannot sum a million large numbers: the statistics are double.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(INITIAL_COUNT, dtype=torch.float64))

    @torch.no_grad()
    def update(self, samples: Tensor) -> None:
        """Add samples, which lie along the first dimension."""
        samples = samples.to(torch.float64)
        number = samples.shape[0]
        mean = samples.mean(0)
        spread = (samples - mean).square().sum(0)
        total = self.count + number
        difference = mean - self.mean
        spread += self.variance * self.count + difference.square() * (self.count * number / total)
        self.mean += difference * (number / total)
        self.variance.copy_(spread / total)
        self.count.copy_(total)


class ObservationNormalizer(RunningMoments):
    """Normalizes every coordinate of observations to mean 0 and variance 1."""

    def forward(self, obs: Tensor) -> Tensor:
        """Normalize with the statistics so far."""
        centered = obs.to(torch.float64) - self.mean
        return (centered / (self.variance + EPSILON).sqrt()).to(obs.dtype)


class RewardScaler(nn.Module):
    """Scales rewards so that discounted returns have unit variance and stay within a limit.

    As in the published code, the return starts anew with the last reward of an episode, not with
    the first one of the next.
    """

    returns: Tensor
    largest: Tensor

    def __init__(self, num_envs: int, gamma: float, limit: float = math.inf) -> None:
        super().__init__()
        self.gamma, self.limit = gamma, limit
        self.moments = RunningMoments(())
        self.register_buffer("returns", torch.zeros(num_envs, dtype=torch.float64))
        self.register_buffer("largest", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, reward: Tensor, done: Tensor) -> None:
        """Add one step of every environment."""
        self.returns.copy_(self.gamma * (~done) * self.returns + reward)
        self.moments.update(self.returns)
        self.largest.copy_(torch.maximum(self.largest, self.returns.abs().max()))

    def forward(self, reward: Tensor) -> Tensor:
        """Scale with the statistics so far."""
        deviation = (self.moments.variance + EPSILON).sqrt()
        return (reward / torch.maximum(deviation, self.largest / self.limit)).to(reward.dtype)

    def scaled_rollout(self, reward: Tensor, done: Tensor) -> Tensor:
        """Add a rollout (steps, environments), and return it scaled and cut off at ``LARGEST``."""
        for step_reward, step_done in zip(reward, done, strict=True):
            self.update(step_reward, step_done)
        scaled: Tensor = self(reward)
        return scaled.clamp(-LARGEST, LARGEST)
