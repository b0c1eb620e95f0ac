"""Neurons that do little beside the others of their layer: by their outputs, or by their gradients.

Both rules compare a neuron with its layer's mean, so neither depends on the scale of the layer, and
a network with small activations is not called dormant.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard.health.samples import Positions, as_samples

TAU = 0.025
"""The threshold of ReDo."""


def tau_dormant(
    activations: Tensor,
    tau: float = TAU,
    *,
    positions: Positions = "samples",
    feature_dim: int | None = None,
) -> Tensor:
    """Return which neurons' mean absolute output is at most ``tau`` times their layer's mean.

    Of Sokar et al. (2023). In a layer of zeros every neuron is dormant.

    Examples:
        >>> x = torch.tensor([[1.0, 0.01, -2.0], [-1.0, 0.01, 2.0]])  # means 1, 0.01 and 2
        >>> tau_dormant(x)
        tensor([False,  True, False])
        >>> tau_dormant(1e-6 * x)  # the scale does not matter
        tensor([False,  True, False])
    """
    check_tau(tau)
    samples = as_samples(activations, positions, feature_dim)
    return low_outputs(samples.unsqueeze(0), tau)[0]


def gradient_dormant(gradient: Tensor, neurons: int | None = None, tau: float = TAU) -> Tensor:
    """Return which neurons get a mean absolute gradient of at most ``tau`` of their layer's.

    The rule of GraMa (Liu et al. 2025), on the gradient of the weights that lead into the neurons,
    with a row for each neuron. Where rows are several times the ``neurons``, as in a product of
    branches, a neuron has one row of each branch. In a layer of zeros every neuron is dormant.

    Examples:
        >>> gradient_dormant(torch.tensor([[1.0, -1.0], [0.0, 0.01], [2.0, 2.0]]))
        tensor([False,  True, False])
        >>> gradient_dormant(torch.tensor([[0.0], [0.0], [1.0], [0.0]]), neurons=2)
        tensor([False,  True])
    """
    check_tau(tau)
    if gradient.dim() < 2 or gradient.numel() == 0:
        raise ValueError(
            f"gradient must have a row of weights for each neuron, got shape "
            f"{tuple(gradient.shape)}: pass that of a linear or convolutional weight"
        )
    rows = len(gradient)
    count = rows if neurons is None else min(rows, neurons)
    if count < 1 or rows % count:
        raise ValueError(f"{rows} rows of weights cannot be divided among {neurons} neurons")
    if not torch.isfinite(gradient).all():
        raise ValueError("gradient holds NaN or infinite values: check the loss and the weights")
    magnitudes = gradient.detach().abs().flatten(1).mean(1).view(-1, count).mean(0)
    return magnitudes <= tau * magnitudes.mean()


def low_outputs(samples: Tensor, tau: float) -> Tensor:
    """Return the tau-dormant neurons of checked activations (networks, samples, neurons)."""
    precision = torch.float32 if samples.device.type == "mps" else torch.float64
    magnitudes = samples.abs().mean(dim=1, dtype=precision)
    return magnitudes <= tau * magnitudes.mean(dim=1, keepdim=True)


def check_tau(tau: float) -> None:
    """Refuse a threshold at which no neuron, or every neuron, would be dormant."""
    if not 0 <= tau < 1:
        raise ValueError(f"tau must be at least 0 and below 1, got {tau}; ReDo uses {TAU}")
