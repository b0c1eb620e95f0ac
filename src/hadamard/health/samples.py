"""Activations of any shape as a checked matrix with samples as rows and neurons as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Positions = Literal["samples", "neurons"]
Array = Any
"""A tensor, or an array of NumPy or JAX."""


class NotFinite(ValueError):
    """Activations or outputs are NaN or infinite: the network has diverged."""


_LARGEST = 1e100  # squares of smaller numbers are finite in float64


def as_tensor(values: Array, label: str) -> Tensor:
    """Return a tensor, or an array of NumPy or JAX, as a tensor."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biufc":
            raise TypeError(f"{label} must be numbers, got an array of {values.dtype}")
        return torch.from_numpy(np.array(values))  # a copy, as the array may be read-only
    if hasattr(values, "__dlpack__"):
        return torch.utils.dlpack.from_dlpack(values)
    raise TypeError(
        f"{label} must be a torch.Tensor or an array of NumPy or JAX, got "
        f"{type(values).__name__}; convert with torch.as_tensor(...)"
    )


def as_samples(
    activations: Array,
    positions: Positions = "samples",
    feature_dim: int | None = None,
    label: str = "activations",
) -> Tensor:
    """Return activations as (samples, neurons); raise an error if they cannot be measured.

    They are a tensor, or an array of NumPy or JAX.

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
    tensor = as_tensor(activations, label)
    matrix = stacked_samples(tensor.unsqueeze(0), positions, feature_dim, label)[0]
    _check_finite(matrix, label)
    return matrix


def stacked_samples(
    activations: Tensor,
    positions: Positions = "samples",
    feature_dim: int | None = None,
    label: str = "activations",
) -> Tensor:
    """Return activations (networks, ...) of one shape as (networks, samples, neurons).

    As ``as_samples`` for each network, but their values are not checked.
    """
    _check_shape(activations[0], positions, label)
    feature_dim = resolve_feature_dim(activations[0], feature_dim)
    activations = activations.detach()
    if positions == "neurons":
        return activations.flatten(2)
    neurons = activations.shape[feature_dim + 1]
    return activations.movedim(feature_dim + 1, -1).reshape(len(activations), -1, neurons)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of one shape. A single one is not copied, so it keeps its memory format."""
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


def within_limits(low: Tensor, high: Tensor) -> Tensor:
    """Say of lowest and highest values whether those between can be measured; False for NaN."""
    limit = min(_LARGEST, torch.finfo(low.dtype).max)
    return (low >= -limit) & (high <= limit)


def check_positions(positions: object) -> None:
    """Raise an error for a way to count neurons that there is not."""
    if positions not in ("samples", "neurons"):
        raise ValueError(f"positions must be 'samples' or 'neurons', got {positions!r}")


def _check_shape(activations: Tensor, positions: Positions, label: str) -> None:
    check_positions(positions)
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
    if within_limits(*matrix.aminmax()):
        return
    invalid = ~within_limits(matrix, matrix)
    sample, neuron = (int(i) for i in invalid.nonzero()[0])
    raise NotFinite(
        f"{label} hold {int(invalid.sum())} NaN or infinite values (or beyond {_LARGEST:g}), the "
        f"first in neuron {neuron} at sample {sample} ({float(matrix[sample, neuron])}): the "
        "network has diverged; check its weights and learning rate before diagnosing it"
    )
