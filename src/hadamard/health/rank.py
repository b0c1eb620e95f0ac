"""Ranks: how many directions carry a representation, by three definitions.

``effective_rank`` is the paper's (srank, Kumar et al. 2021). ``entropy_rank`` is what Roy and
Vetterli (2007) call effective rank, and ``stable_rank`` compares two norms; neither needs a
threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from hadamard.health.samples import Array, Positions, as_samples

# The Gram matrix squares the values, which loses half the digits of float64. Where a cumulative sum
# is closer to the threshold than this, a full SVD decides on which side it is.
_GRAM_ERROR = 1e-6
# Memory for matrices in float64: what fits into a CPU's cache, or occupies a GPU.
_WORKING_BYTES = {"cpu": 2**22, "cuda": 2**28}
# For the eigenvalues of such a matrix a GPU takes several times as long as a CPU, and torch has it
# compute those of many matrices one after the other.
_SIZES_FOR_THE_CPU = range(33, 257)


def effective_rank(
    features: Array,
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
    matrix = as_samples(features, positions, feature_dim, label="features")
    return PendingRanks(matrix.unsqueeze(0), delta).results()[0]


def stable_rank(
    features: Tensor, *, positions: Positions = "samples", feature_dim: int | None = None
) -> float:
    """Return the sum of the squared singular values over the largest of them.

    It is at most the rank, does not change with the scale, and hardly with small singular values.
    An all-zero matrix has 0.

    Examples:
        >>> stable_rank(torch.diag(torch.tensor([2.0, 1.0, 1.0])))
        1.5
    """
    return _spectrum(features, positions, feature_dim).stable_rank


def entropy_rank(
    features: Tensor, *, positions: Positions = "samples", feature_dim: int | None = None
) -> float:
    """Return exp of the entropy of the singular values as shares of their sum.

    Roy and Vetterli's effective rank: n equal singular values give n, unequal ones give less. An
    all-zero matrix has 0.

    Examples:
        >>> round(entropy_rank(torch.eye(10)), 6)
        10.0
        >>> round(entropy_rank(torch.diag(torch.tensor([3.0, 1.0]))), 4)  # shares 3/4 and 1/4
        1.7548
    """
    return _spectrum(features, positions, feature_dim).entropy_rank


class Spectrum(NamedTuple):
    """What a matrix's singular values say without a threshold."""

    stable_rank: float
    entropy_rank: float


def _spectrum(features: Tensor, positions: Positions, feature_dim: int | None) -> Spectrum:
    matrix = as_samples(features, positions, feature_dim, label="features")
    return PendingRanks(matrix.unsqueeze(0), 0.01).spectra()[0]


def check_delta(delta: float) -> None:
    """Raise an error for a share of the spectrum that is none."""
    if isinstance(delta, bool) or not isinstance(delta, int | float):
        raise TypeError(f"delta must be a number, got {type(delta).__name__}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}; the paper uses 0.01")


class PendingRanks:
    """The effective ranks of checked matrices (networks, samples, neurons), still being computed.

    What a GPU computes is queued, so that something else can be queued before the results are read.
    """

    def __init__(self, matrices: Tensor, delta: float) -> None:
        check_delta(delta)
        if matrices.device.type == "mps":  # has no float64
            matrices = matrices.cpu()
        self.matrices, self.delta = matrices, delta
        # Scaled to at most 1, so that squares of large activations do not overflow.
        scale = matrices.abs().amax(dim=(1, 2)).double()
        self._scale = torch.where(scale > 0, scale, 1.0)
        working_bytes = _WORKING_BYTES.get(matrices.device.type, 2**26)
        at_once = max(1, working_bytes // (8 * matrices[0].numel()))
        parts = zip(matrices.split(at_once), self._scale.split(at_once), strict=True)
        self._eigenvalues = _pending_eigenvalues(torch.cat([_gram(*part) for part in parts]))

    def results(self) -> list[int]:
        """Return the effective ranks; an SVD decides those that rounding could change."""
        singular = self._singular_values()
        values = singular * self._scale.to(singular.device)[:, None]
        mass, target = values.cumsum(1), (1 - self.delta) * values.sum(1, keepdim=True)
        undecided = ((mass - target).abs() <= _GRAM_ERROR * target) & (target > 0)
        ranks = torch.where(undecided.any(1), 0, _count(mass, target)).tolist()
        return [
            rank or _rank_by_svd(matrix, self.delta)
            for rank, matrix in zip(ranks, self.matrices, strict=True)
        ]

    def spectra(self) -> list[Spectrum]:
        """Return the ranks that need no threshold."""
        values = self._singular_values()
        shares = values / values.sum(1, keepdim=True).clamp_min(1e-300)
        entropy = -torch.xlogy(shares, shares).sum(1)
        squares = values.square()
        stable = squares.sum(1) / squares[:, 0].clamp_min(1e-300)
        ranks = torch.stack([stable, torch.where(squares[:, 0] > 0, entropy.exp(), 0)], 1)
        return [Spectrum(*pair) for pair in ranks.tolist()]

    def _singular_values(self) -> Tensor:
        """Return the singular values of the scaled matrices, largest first."""
        return self._eigenvalues().clamp(min=0).sqrt().flip(1)


def _gram(matrices: Tensor, scale: Tensor) -> Tensor:
    """Return the smaller Gram matrices in float64."""
    scaled = matrices.double() / scale[:, None, None]
    return scaled.mT @ scaled if scaled.shape[1] >= scaled.shape[2] else scaled @ scaled.mT


def _pending_eigenvalues(gram: Tensor) -> Callable[[], Tensor]:
    """Start computing eigenvalues, smallest first; return a function that waits for them."""
    if gram.is_cuda and gram.shape[1] in _SIZES_FOR_THE_CPU:
        copied = torch.cuda.Event()
        on_cpu = torch.empty(gram.shape, dtype=gram.dtype, pin_memory=True)
        on_cpu.copy_(gram, non_blocking=True)
        copied.record(torch.cuda.current_stream(gram.device))
        pool = ThreadPoolExecutor(1)
        pending = pool.submit(_eigenvalues_after, copied, on_cpu)
        pool.shutdown(wait=False)
        return pending.result
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return lambda: eigenvalues


def _eigenvalues_after(copied: torch.cuda.Event, gram: Tensor) -> Tensor:
    copied.synchronize()
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return eigenvalues


def _rank_by_svd(matrix: Tensor, delta: float) -> int:
    values = torch.linalg.svdvals(matrix.double())
    return int(_count(values.cumsum(0), (1 - delta) * values.sum(0, keepdim=True)))


def _count(mass: Tensor, target: Tensor) -> Tensor:
    return mass.shape[-1] - (mass >= target).sum(-1) + 1
