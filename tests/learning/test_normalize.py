"""Running statistics of observations, and reward scaling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hadamard.learning.normalize import ObservationNormalizer, RewardScaler


def test_running_statistics_equal_those_of_two_passes() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(1_000_000, 3)) * [1.0, 1e-2, 30.0] + [1e4, -1e5, 0.1]
    samples = samples.astype(np.float32)
    normalizer = ObservationNormalizer((3,))
    for chunk in np.split(samples, 10_000):
        normalizer.update(torch.from_numpy(chunk))
    mean = samples.astype(np.float64).mean(0)
    variance = ((samples.astype(np.float64) - mean) ** 2).mean(0)
    # The initial mean 0 and variance 1 count as 1e-4 of a sample.
    share = 1e-4 / (1e6 + 1e-4)
    expected = variance * (1 - share) + share + mean**2 * share * (1 - share)
    np.testing.assert_allclose(normalizer.mean.numpy(), mean * (1 - share), rtol=1e-12)
    np.testing.assert_allclose(normalizer.variance.numpy(), expected, rtol=1e-9)
    single = normalizer(torch.from_numpy(samples[:1000])).numpy()
    by_hand = (samples[:1000] - mean * (1 - share)) / np.sqrt(expected + 1e-8)
    np.testing.assert_allclose(single, by_hand, atol=1e-5)


def test_observations_may_be_added_one_by_one_or_together() -> None:
    generator = torch.Generator().manual_seed(3)
    samples = torch.randn(200, 4, generator=generator)
    single, batched = ObservationNormalizer((4,)), ObservationNormalizer((4,))
    for sample in samples:
        single.update(sample[None])
    batched.update(samples)
    torch.testing.assert_close(single.variance, batched.variance)
    torch.testing.assert_close(single.mean, batched.mean)


def test_rewards_are_scaled_by_returns_and_their_limit() -> None:
    rng = np.random.default_rng(1)
    rewards = rng.normal(size=(60, 2)) * 3
    done = rng.random((60, 2)) < 0.2
    scaler = RewardScaler(2, gamma=0.9, limit=5.0)
    running, returns = np.zeros(2), []
    for reward, ended in zip(rewards, done, strict=True):
        scaler.update(torch.from_numpy(reward), torch.from_numpy(ended))
        # The last reward of an episode starts the return anew.
        running = np.where(ended, reward, 0.9 * running + reward)
        returns.append(running)
    all_returns = np.array(returns)
    count = all_returns.size
    share = 1e-4 / (count + 1e-4)
    variance = (
        all_returns.var() * (1 - share) + share + all_returns.mean() ** 2 * share * (1 - share)
    )
    divisor = max(math.sqrt(variance + 1e-8), abs(all_returns).max() / 5)
    assert scaler(torch.tensor([2.0])).item() == pytest.approx(2 / divisor, rel=1e-6)
    assert done.any(0).all()
    # After one enormous return the limit decides.
    scaler.update(torch.tensor([1e4, 0.0]), torch.tensor([False, False]))
    largest = abs(0.9 * running[0] + 1e4)
    assert scaler(torch.tensor([1.0])).item() == pytest.approx(5 / largest, rel=1e-6)
