"""Distributions of actions, of returns and of rewards."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sample_squashed_gaussian(
    mean: Tensor, deviation: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return tanh of a Gaussian sample and its log-probability, exact far in the tails."""
    raw = mean + deviation * noise
    gaussian = -0.5 * noise.square() - deviation.log() - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), without forming 1 - tanh(x)^2
    volume = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
    return torch.tanh(raw), (gaussian - volume).sum(-1)


def project_on_bins(probability: Tensor, values: Tensor, bins: Tensor) -> Tensor:
    """Split the probability of each value between the two bins that it lies between."""
    low, high = bins[0], bins[-1]
    width = (high - low) / (len(bins) - 1)
    position = (values.clamp(low, high) - low) / width
    index = torch.arange(len(bins), device=bins.device, dtype=bins.dtype)
    # A bin's share falls linearly with the distance, to 0 at one bin's width.
    share = (1 - (position[:, None, :] - index[:, None]).abs()).clamp_min(0)
    return (share * probability[:, None, :]).sum(-1)


def cross_entropy(target: Tensor, predicted: Tensor) -> Tensor:
    """Return the cross-entropy of log-probabilities (members, batch, bins) under a target.

    The mean over the batch, summed over the members.
    """
    return -(target * predicted).sum(-1).mean(-1).sum()


class TwoHot(nn.Module):
    """Numbers as probabilities of the two bins they lie between; bins are dense around zero."""

    bins: Tensor

    def __init__(self, count: int, largest: float = 10.0) -> None:
        super().__init__()
        exponent = torch.linspace(-largest, largest, count)
        self.register_buffer("bins", exponent.sign() * exponent.abs().expm1(), persistent=False)

    def encode(self, value: Tensor) -> Tensor:
        """Return the probabilities (..., bins); values beyond the outermost bins count as those."""
        # The share of each gap between bins that lies below the value: 1s, a fraction, then 0s.
        below = ((value[..., None] - self.bins[:-1]) / self.bins.diff()).clamp(0, 1)
        return F.pad(below, (1, 0), value=1.0) - F.pad(below, (0, 1))

    def decode(self, probability: Tensor) -> Tensor:
        """Return the means of distributions over the bins."""
        return (probability * self.bins).sum(-1)

    def compare(self, logits: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of predictions, and the absolute error of their means."""
        log_probability = logits.log_softmax(-1)
        loss = -(self.encode(value) * log_probability).sum(-1)
        return loss, (self.decode(log_probability.detach().exp()) - value).abs()
