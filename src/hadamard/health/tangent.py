"""The neural tangent kernel on a batch: how differently a network learns from its observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hadamard.health.rank import PendingRanks

OBSERVATIONS = 64
"""Observations in the kernel of a diagnosis."""


def ntk_rank(jacobian: Tensor, delta: float = 0.01) -> int:
    """Count the eigenvalues of the tangent kernel that hold 1 - delta of their sum.

    Row i of ``jacobian`` is the gradient of the output for observation i by all weights, and entry
    (i, j) of the kernel the product of rows i and j: by how much an update on one observation moves
    the output for the other. A rank of 1 means that nothing can be learned about one observation
    without changing all others alike. All-zero gradients have rank 0.

    Examples:
        >>> ntk_rank(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 2.0, 2.0]]))
        2
    """
    if jacobian.dim() != 2 or jacobian.numel() == 0:
        raise ValueError(
            "jacobian must be (observations, weights) and not empty, got shape "
            f"{tuple(jacobian.shape)}"
        )
    if not torch.isfinite(jacobian).all():
        raise ValueError("jacobian holds NaN or infinite values: the network has diverged")
    return kernel_rank(kernel(jacobian), delta)


def kernel(jacobian: Tensor) -> Tensor:
    """Return the products of all pairs of rows, scaled so that none overflows."""
    largest = jacobian.abs().amax()
    rows = jacobian / torch.where(largest > 0, largest, 1)
    return rows @ rows.T


def kernel_rank(tangent_kernel: Tensor, delta: float = 0.01) -> int:
    """Return the effective rank of a kernel, 0 where it is all zeros."""
    if not bool(tangent_kernel.any()):
        return 0
    return PendingRanks(tangent_kernel.detach().unsqueeze(0), delta).results()[0]


def jacobian_of(outputs: Tensor, weights: list[nn.Parameter]) -> Tensor:
    """Return the gradient of each output (observations,) by all weights, one row each."""
    rows = []
    for output in outputs:
        gradients = torch.autograd.grad(output, weights, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.stack(rows)
