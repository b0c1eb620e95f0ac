"""Effective rank: the number of directions that carry most of a representation."""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard.health.samples import Positions, as_samples

# The Gram matrix squares the values, which loses half the digits of float64. Where a cumulative sum
# is closer to the threshold than this, a full SVD decides on which side it is.
_GRAM_ERROR = 1e-6
_WORKING_BYTES = 2**28
# Of larger matrices, torch on CUDA computes the eigenvalues of one after the other, each taking
# several times as long as a CPU takes.
_LARGEST_BATCHED_ON_GPU = 32


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
    return PendingRanks(matrix.unsqueeze(0), delta).results()[0]


class PendingRanks:
    """The effective ranks of checked matrices (networks, samples, neurons), still being computed.

    What a GPU computes is queued, so that something else can be queued before the results are read.
    """

    def __init__(self, matrices: Tensor, delta: float) -> None:
        self.matrices, self.delta = matrices, delta
        values = torch.cat([_singular_values(part) for part in matrices.split(_at_once(matrices))])
        mass, target = values.cumsum(1), (1 - delta) * values.sum(1, keepdim=True)
        undecided = ((mass - target).abs() <= _GRAM_ERROR * target) & (target > 0)
        self._ranks = torch.where(undecided.any(1), 0, _count(mass, target))

    def results(self) -> list[int]:
        """Return the ranks; an SVD decides those that rounding could change."""
        return [
            rank or _rank_by_svd(matrix, self.delta)
            for rank, matrix in zip(self._ranks.tolist(), self.matrices, strict=True)
        ]


def _rank_by_svd(matrix: Tensor, delta: float) -> int:
    values = torch.linalg.svdvals(matrix.double())
    return int(_count(values.cumsum(0), (1 - delta) * values.sum(0, keepdim=True)))


def _count(mass: Tensor, target: Tensor) -> Tensor:
    return mass.shape[-1] - (mass >= target).sum(-1) + 1


def _at_once(matrices: Tensor) -> int:
    """Return how many matrices are held in float64 at a time."""
    return max(1, _WORKING_BYTES // (8 * matrices[0].numel()))


def _singular_values(matrices: Tensor) -> Tensor:
    """Return singular values, largest first, computed from the smaller Gram matrices."""
    # Scaled to at most 1, so that squares of large activations do not overflow.
    scale = matrices.abs().amax(dim=(1, 2)).double()
    scaled = matrices.double() / torch.where(scale > 0, scale, 1.0)[:, None, None]
    gram = scaled.mT @ scaled if scaled.shape[1] >= scaled.shape[2] else scaled @ scaled.mT
    if gram.is_cuda and len(gram) > 1 and gram.shape[1] > _LARGEST_BATCHED_ON_GPU:
        gram, scale = gram.cpu(), scale.cpu()
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return eigenvalues.clamp(min=0).sqrt().flip(1) * scale[:, None]
