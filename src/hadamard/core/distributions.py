"""Distributions of actions and of returns."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def squashed(mean: Tensor, deviation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return tanh of a Gaussian sample and its log-probability, exact far in the tails."""
    raw = mean + deviation * noise
    gaussian = -0.5 * noise.square() - deviation.log() - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), without forming 1 - tanh(x)^2
    volume = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
    return torch.tanh(raw), (gaussian - volume).sum(-1)


def project_on_bins(probability: Tensor, places: Tensor, bins: Tensor) -> Tensor:
    """Share out probabilities that lie at ``places`` between the bins on either side."""
    low, high = bins[0], bins[-1]
    width = (high - low) / (len(bins) - 1)
    position = (places.clamp(low, high) - low) / width
    index = torch.arange(len(bins), device=bins.device, dtype=bins.dtype)
    # Each bin receives by how near a place is, up to one bin's width away.
    near = (1 - (position[:, None, :] - index[:, None]).abs()).clamp_min(0)
    return (near * probability[:, None, :]).sum(-1)


def cross_entropy(target: Tensor, predicted: Tensor) -> Tensor:
    """Judge log-probabilities (members, batch, bins): a batch's mean, summed over members."""
    return -(target * predicted).sum(-1).mean(-1).sum()
