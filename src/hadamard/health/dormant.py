"""Dormant neurons: those that no longer respond to the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hadamard.health.kde import density_peaks
from hadamard.health.samples import Array, Positions, as_samples

Kind = Literal["relu", "tanh", "auto"]
THRESHOLD = 20.0


@dataclass(frozen=True, eq=False)
class Dormancy:
    """Which neurons are dormant, and how that was decided."""

    mask: Tensor
    """True for each dormant neuron."""
    kind: Literal["relu", "tanh"]
    """``"relu"``: identically zero. ``"tanh"``: density peak at or above the threshold."""
    peaks: Tensor | None
    """Highest density of each neuron; None for the ReLU rule, which needs no density."""

    @property
    def count(self) -> int:
        """Number of dormant neurons."""
        return int(self.mask.sum())

    @property
    def fraction(self) -> float:
        """Dormant share of all neurons."""
        return self.count / self.mask.numel()

    def __str__(self) -> str:
        return f"{self.count} of {self.mask.numel()} neurons dormant ({self.fraction:.1%})"


def dormant(
    activations: Array,
    kind: Kind = "auto",
    threshold: float = THRESHOLD,
    *,
    positions: Positions = "samples",
    feature_dim: int | None = None,
    generator: torch.Generator | None = None,
) -> Dormancy:
    """Find the neurons whose output is (nearly) the same for every input of the batch.

    ``kind="relu"``: a neuron is dormant if it is zero for every sample. ``kind="tanh"``, for any
    smooth activation: it is dormant if the peak of the kernel density of its activations is at
    least ``threshold``, which is the paper's rule. ``"auto"`` uses the ReLU rule if no activation
    is negative and some are exactly zero. ``positions`` and ``feature_dim`` say which dimensions
    of the activations are neurons, see ``as_samples``.

    Examples:
        >>> x = torch.linspace(-1, 1, 256)
        >>> dormant(torch.stack([x, torch.ones(256)], dim=1)).mask
        tensor([False,  True])
    """
    samples = as_samples(activations, positions, feature_dim).unsqueeze(0)
    mask, (by_zeros,), peaks = stacked_dormancy(samples, kind, threshold, [generator])
    if by_zeros:
        return Dormancy(mask[0], "relu", None)
    return Dormancy(mask[0], "tanh", peaks[0])


def check_threshold(threshold: float) -> None:
    """Raise an error for a threshold that no density can be compared with."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise TypeError(f"threshold must be a number, got {type(threshold).__name__}")
    if not threshold > 0:
        raise ValueError(f"threshold must be positive, got {threshold}; the paper uses 20")


def stacked_dormancy(
    samples: Tensor,
    kind: Kind,
    threshold: float,
    generators: Sequence[torch.Generator | None],
) -> tuple[Tensor, list[bool], Tensor]:
    """Find the dormant neurons of networks of one shape, each with its own generator.

    For checked activations (networks, samples, neurons). Returns the mask (networks, neurons), for
    each network whether the ReLU rule decided, and the density peaks of the other networks.
    """
    if kind not in ("relu", "tanh", "auto"):
        raise ValueError(f"kind must be 'relu', 'tanh' or 'auto', got {kind!r}")
    check_threshold(threshold)
    always_zero = (samples == 0).all(dim=1)
    by_zeros = [kind == "relu"] * len(samples)
    if kind == "auto":
        never_negative = samples.amin(dim=(1, 2)) >= 0
        by_zeros = (never_negative & (samples == 0).any(dim=2).any(dim=1)).tolist()
    by_density = [index for index, zeros in enumerate(by_zeros) if not zeros]
    if not by_density:
        return always_zero, by_zeros, samples.new_empty(0)
    own_generators = [generators[index] for index in by_density]
    if len(by_density) == len(samples):
        peaks = density_peaks(samples, own_generators)
        return peaks >= threshold, by_zeros, peaks
    peaks = density_peaks(samples[by_density], own_generators)
    always_zero[by_density] = peaks >= threshold
    return always_zero, by_zeros, peaks
