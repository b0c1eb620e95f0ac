"""Activations of any shape as a checked matrix with samples as rows and neurons as columns."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Positions = Literal["samples", "neurons"]
_LARGEST = 1e100  # squares of smaller numbers are finite in float64


def as_samples(
    activations: Tensor,
    positions: Positions = "samples",
    feature_dim: int | None = None,
    label: str = "activations",
) -> Tensor:
    """Return activations as (samples, neurons); raise an error if they cannot be measured.

    There are two ways to count the neurons of feature maps (N, C, H, W). ``positions="samples"``:
    each channel is one neuron with N * H * W samples, so it is dormant only if it is dormant
    at every position. ``positions="neurons"``: each channel at each position is one neuron with N
    samples. ``feature_dim`` is the dimension that holds the features; by default it is the second
    for images (4 or 5 dimensions) and the last otherwise.

    Examples:
        >>> as_samples(torch.zeros(32, 16, 8, 8)).shape
        torch.Size([2048, 16])
        >>> as_samples(torch.zeros(32, 16, 8, 8), positions="neurons").shape
        torch.Size([32, 1024])
    """
    if positions not in ("samples", "neurons"):
        raise ValueError(f"positions must be 'samples' or 'neurons', got {positions!r}")
    if not isinstance(activations, Tensor):
        raise TypeError(
            f"{label} must be a torch.Tensor, got {type(activations).__name__}; "
            "convert with torch.as_tensor(...)"
        )
    if activations.is_complex():
        raise TypeError(
            f"{label} must be real, got {activations.dtype}: measure the real part (.real) or the "
            "absolute value (.abs()); in a network, mark() a module that returns it"
        )
    if not activations.is_floating_point():
        raise TypeError(
            f"{label} must be floating point, got {activations.dtype}; convert with .float()"
        )
    shape = tuple(activations.shape)
    if len(shape) < 2:
        raise ValueError(
            f"{label} must have at least 2 dimensions (batch, neurons), got shape {shape}: pass a "
            "batch of at least two observations"
        )
    if shape[0] < 2:
        raise ValueError(
            f"{label} need a batch of at least 2 observations, got {shape[0]} (shape {shape}): a "
            "neuron is dormant if its output does not change between observations"
        )
    if activations.numel() == 0:
        raise ValueError(f"{label} are empty: shape {shape}")
    feature_dim = resolve_feature_dim(activations, feature_dim)
    activations = activations.detach()
    if positions == "samples":
        matrix = activations.movedim(feature_dim, -1).reshape(-1, shape[feature_dim])
    else:
        matrix = activations.reshape(shape[0], -1)
    _check_finite(matrix, label)
    return matrix


def resolve_feature_dim(activations: Tensor, feature_dim: int | None = None) -> int:
    """Return the dimension that holds the features, counted from the first."""
    dims = activations.dim()
    if feature_dim is None:
        feature_dim = 1 if dims in (4, 5) else -1
    if not -dims < feature_dim < dims or feature_dim == 0:
        raise ValueError(
            f"feature_dim {feature_dim} does not fit activations of shape "
            f"{tuple(activations.shape)}"
        )
    return feature_dim % dims


def _check_finite(matrix: Tensor, label: str) -> None:
    limit = min(_LARGEST, torch.finfo(matrix.dtype).max)
    low, high = matrix.aminmax()  # both NaN if any entry is
    if low >= -limit and high <= limit:
        return
    invalid = ~(matrix.abs() <= limit)
    sample, neuron = (int(i) for i in invalid.nonzero()[0])
    raise ValueError(
        f"{label} hold {int(invalid.sum())} NaN or infinite values (or beyond {_LARGEST:g}), the "
        f"first in neuron {neuron} at sample {sample} ({float(matrix[sample, neuron])}): the "
        "network has diverged; check its weights and learning rate before diagnosing it"
    )
