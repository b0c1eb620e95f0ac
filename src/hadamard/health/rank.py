"""Effective rank: the number of directions that carry most of a representation."""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard.health.samples import Positions, as_samples

# The Gram matrix squares the values, which loses half the digits of float64. Where a cumulative sum
# is closer to the threshold than this, a full SVD decides on which side it is.
_GRAM_ERROR = 1e-6


def effective_rank(
    features: Tensor,
    delta: float = 0.01,
    *,
    positions: Positions = "samples",
    feature_dim: int | None = None,
) -> int:
    """Count the singular values that hold 1 - delta of the spectrum's mass (srank of the paper).

    Computed from the smaller Gram matrix in float64, or by SVD where its rounding errors could
    change the result. An all-zero matrix has rank 1, as in the paper's function.

    Examples:
        >>> effective_rank(torch.eye(10))
        10
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}; the paper uses 0.01")
    matrix = as_samples(features, positions, feature_dim, label="features")
    if matrix.device.type == "mps":  # has no float64
        matrix = matrix.cpu()
    values = gram_singular_values(matrix)
    mass, target = values.cumsum(0), (1 - delta) * values.sum()
    if bool(((mass - target).abs() <= _GRAM_ERROR * target).any()):
        values = torch.linalg.svdvals(matrix.double())
        mass, target = values.cumsum(0), (1 - delta) * values.sum()
    return len(values) - int((mass >= target).sum()) + 1


def gram_singular_values(matrix: Tensor) -> Tensor:
    """Return the singular values, largest first, computed from the smaller Gram matrix."""
    # Scaled to at most 1, so that squares of large activations do not overflow.
    scale = matrix.abs().max().double()
    matrix = matrix.double() / torch.where(scale > 0, scale, 1.0)
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return eigenvalues.clamp(min=0).sqrt().flip(0) * scale
