"""Policies against PyTorch's distributions and hand-worked numbers."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Normal

from hadamard.learning.policies import CategoricalPolicy, GaussianPolicy


def test_categorical() -> None:
    logits = torch.randn(4, 3)
    generator = torch.Generator().manual_seed(0)
    policy = Categorical(logits=logits)
    sample = CategoricalPolicy.sample(logits, CategoricalPolicy.draws(logits, generator))
    probability, entropy = CategoricalPolicy.log_probability_and_entropy(logits, sample["action"])
    torch.testing.assert_close(sample["log_probability"], policy.log_prob(sample["action"]))
    torch.testing.assert_close(probability, sample["log_probability"])
    torch.testing.assert_close(entropy, policy.entropy())
    assert torch.equal(CategoricalPolicy.likeliest(logits), logits.argmax(1))
    assert CategoricalPolicy.played(sample["action"]) is sample["action"]


def test_categorical_samples_are_as_frequent_as_the_policy_says() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(20_000, 3)
    draws = CategoricalPolicy.draws(logits, torch.Generator().manual_seed(0))
    action = CategoricalPolicy.sample(logits, draws)["action"]
    frequency = action.bincount().double() / len(action)
    torch.testing.assert_close(frequency, logits[0].double().softmax(0), rtol=0, atol=0.01)


def test_gaussian() -> None:
    mean, log_deviation = 0.5 * torch.randn(5, 2), torch.tensor([[-0.5, 0.3]]).expand(5, 2)
    parameters = torch.cat([mean, log_deviation], 1)
    draws = GaussianPolicy.draws(parameters, torch.Generator().manual_seed(0))
    assert draws.shape == (5, 2)
    sample = GaussianPolicy.sample(parameters, draws)
    policy = Normal(mean, log_deviation.exp())
    torch.testing.assert_close(sample["action"], mean + log_deviation.exp() * draws)
    expected = policy.log_prob(sample["action"]).sum(1)
    torch.testing.assert_close(sample["log_probability"], expected)
    action = torch.randn(5, 2)
    probability, entropy = GaussianPolicy.log_probability_and_entropy(parameters, action)
    torch.testing.assert_close(probability, policy.log_prob(action).sum(1))
    torch.testing.assert_close(entropy, policy.entropy().sum(1))


def test_gaussian_actions_stay_within_their_limits() -> None:
    parameters = torch.tensor([[0.2, -3.0, 0.0, 0.0]])
    assert GaussianPolicy.likeliest(parameters).tolist() == [[pytest.approx(0.2), -1.0]]
    assert GaussianPolicy.played(torch.tensor([[4.0, -0.5]])).tolist() == [[1.0, -0.5]]
