"""Policies over actions, as functions of what a network says of an observation.

A network gives every observation a row of parameters; a policy draws actions from them and tells
how likely actions are.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Categorical


class Policy(Protocol):
    """A kind of distribution over actions."""

    @staticmethod
    def draws(parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Return the random numbers that ``sample`` needs."""

    @staticmethod
    def sample(parameters: Tensor, draws: Tensor) -> dict[str, Tensor]:
        """Return the ``action`` drawn with these numbers, and its ``log_probability``."""

    @staticmethod
    def played(action: Tensor) -> Tensor:
        """Return drawn actions as the environments take them."""

    @staticmethod
    def likeliest(parameters: Tensor) -> Tensor:
        """Return the likeliest actions."""

    @staticmethod
    def log_probability_and_entropy(parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of drawn actions, and the policies' entropies."""


class CategoricalPolicy:
    """One of several actions; the parameters are logits."""

    @staticmethod
    def draws(parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Return a uniform number for each logit."""
        dtype, device = parameters.dtype, parameters.device
        return torch.rand(parameters.shape, generator=generator, dtype=dtype, device=device)

    @staticmethod
    def sample(parameters: Tensor, draws: Tensor) -> dict[str, Tensor]:
        """Sample with a uniform number for each logit."""
        log_probabilities = parameters.log_softmax(1)
        # The argmax of log-probabilities plus Gumbel noise is a sample, without waiting for a GPU.
        action = (log_probabilities - (-draws.log()).log()).argmax(1)
        log_probability = log_probabilities.gather(1, action.unsqueeze(1)).squeeze(1)
        return {"action": action, "log_probability": log_probability}

    @staticmethod
    def played(action: Tensor) -> Tensor:
        """Return the actions."""
        return action

    @staticmethod
    def likeliest(parameters: Tensor) -> Tensor:
        """Return the actions of the largest logits."""
        return parameters.argmax(1)

    @staticmethod
    def log_probability_and_entropy(parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actions' log-probabilities and the policies' entropies."""
        policy = Categorical(logits=parameters, validate_args=False)
        return policy.log_prob(action), policy.entropy()


class GaussianPolicy:
    """Numbers in [-1, 1], each with a Gaussian of its own; the parameters are means, then logs of
    deviations.

    What is drawn beyond the limits is played as the limit, and learned from as it was drawn.
    """

    @staticmethod
    def draws(parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Return a normal number for each number of an action."""
        shape, dtype = (len(parameters), parameters.shape[1] // 2), parameters.dtype
        return torch.randn(shape, generator=generator, dtype=dtype, device=parameters.device)

    @staticmethod
    def sample(parameters: Tensor, draws: Tensor) -> dict[str, Tensor]:
        """Sample with a normal number for each number of an action."""
        mean, log_deviation = parameters.chunk(2, 1)
        return {
            "action": mean + log_deviation.exp() * draws,
            "log_probability": _gaussian_log_probability(draws, log_deviation),
        }

    @staticmethod
    def played(action: Tensor) -> Tensor:
        """Cut actions off at the limits.

        Examples:
            >>> GaussianPolicy.played(torch.tensor([[0.5, 2.0]]))
            tensor([[0.5000, 1.0000]])
        """
        return action.clamp(-1, 1)

    @staticmethod
    def likeliest(parameters: Tensor) -> Tensor:
        """Return the means, within the limits."""
        return parameters.chunk(2, 1)[0].clamp(-1, 1)

    @staticmethod
    def log_probability_and_entropy(parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, summed over the numbers of an action."""
        mean, log_deviation = parameters.chunk(2, 1)
        noise = (action - mean) / log_deviation.exp()
        entropy = (log_deviation + 0.5 * math.log(2 * math.pi * math.e)).sum(1)
        return _gaussian_log_probability(noise, log_deviation), entropy


def _gaussian_log_probability(noise: Tensor, log_deviation: Tensor) -> Tensor:
    return (-0.5 * noise.square() - log_deviation - 0.5 * math.log(2 * math.pi)).sum(1)
