"""The hidden bias: the constant that dormant neurons add to the next layer's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.health.samples import (
    Array,
    NotFinite,
    as_samples,
    as_tensor,
    resolve_feature_dim,
    stacked,
)
from hadamard.modules import AFFINE


@dataclass(frozen=True, eq=False)
class HiddenBias:
    """The next layer's pre-activation as the sum of three parts."""

    live: Tensor
    """The part from neurons that still respond, in the shape of the layer's output."""
    dormant: Tensor
    """The part from dormant neurons, which is (nearly) the same for every input."""
    bias: Tensor
    """The layer's own bias, broadcast over the batch."""
    output_dim: int

    def _per_output(self, part: Tensor) -> Tensor:
        return mean_magnitudes(part.unsqueeze(0), self.output_dim)[0]

    @property
    def live_contribution(self) -> Tensor:
        """Average absolute contribution of live neurons to each output."""
        return self._per_output(self.live)

    @property
    def dormant_contribution(self) -> Tensor:
        """Average absolute contribution of dormant neurons to each output."""
        return self._per_output(self.dormant)

    @property
    def bias_contribution(self) -> Tensor:
        """Absolute bias of each output."""
        return self._per_output(self.bias)

    @property
    def effective_bias(self) -> Tensor:
        """Each output's bias plus the mean of the dormant part."""
        return (self.dormant + self.bias).movedim(self.output_dim, 0).flatten(1).mean(dim=1)

    @property
    def share(self) -> float:
        """Dormant neurons' share of all absolute contributions; 0 if all are zero."""
        dormant = float(self.dormant_contribution.sum())
        total = dormant + float((self.live_contribution + self.bias_contribution).sum())
        return dormant / total if total > 0 else 0.0


@torch.no_grad()
def hidden_bias(
    activations: Array, next_layer: nn.Module, mask: Array, feature_dim: int | None = None
) -> HiddenBias:
    """Split the output of ``next_layer`` on ``activations`` into live, dormant and bias parts.

    ``mask`` is True for dormant neurons: one entry per feature (per channel for feature maps),
    or one per feature and position; ``feature_dim`` as in ``dormant``. Feature maps are flattened
    before a linear layer. Of a fused Hadamard layer the affine map is split, so the outputs are
    the pre-activations of all its branches.

    Examples:
        >>> layer = nn.Linear(2, 1)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, 3.0]])), layer.bias.data.fill_(0.5)
        >>> split = hidden_bias(torch.tensor([[0.5, -1.0], [-0.5, -1.0]]), layer,
        ...                     torch.tensor([False, True]))
        >>> float(split.live_contribution), float(split.dormant_contribution)
        (0.5, 3.0)
        >>> float(split.effective_bias)
        -2.5
    """
    layer = affine_of(next_layer)
    activations, mask = as_tensor(activations, "activations"), as_tensor(mask, "mask")
    as_samples(activations, feature_dim=feature_dim)  # raises an error for NaN
    parts = split_outputs([layer], activations[None], mask[None], feature_dim)
    live, dormant, bias = (part[0] for part in parts)
    if not finite_outputs(live[None], dormant[None]):
        raise NotFinite(
            f"{type(layer).__name__} returns NaN or infinite values for finite activations; check "
            "its weights before diagnosing it"
        )
    return HiddenBias(live, dormant, bias, output_dim(layer))


def affine_of(next_layer: nn.Module) -> nn.Module:
    """Return the affine map of a layer after a representation; raise an error if it has none."""
    layer: nn.Module = getattr(next_layer, "affine", next_layer)
    if not isinstance(layer, AFFINE):
        raise TypeError(
            f"next_layer must be linear or convolutional, got {type(next_layer).__name__}: the "
            "hidden bias is defined for the affine map after the representation"
        )
    if layer.weight.is_complex():
        raise TypeError(
            f"{type(layer).__name__} has complex weights ({layer.weight.dtype}): the hidden bias "
            "is defined for real ones"
        )
    return layer


def split_outputs(
    layers: Sequence[nn.Module], activations: Tensor, mask: Tensor, feature_dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the live, dormant and bias parts of the outputs of networks of one shape.

    ``layers`` are affine, one of each network. ``activations``, ``mask`` and the parts have a
    leading dimension for the networks; otherwise as ``hidden_bias``.
    """
    is_dormant = _expand(mask, activations, feature_dim)
    dormant_input = torch.where(is_dormant, activations, 0)
    live_input = torch.where(is_dormant, 0, activations)
    first = layers[0]
    if isinstance(first, nn.Linear) and activations.shape[-1] != first.in_features:
        # Feature maps are flattened before a linear layer.
        dormant_input, live_input = dormant_input.flatten(2), live_input.flatten(2)
    nothing = torch.zeros_like(live_input[0])
    bias = stacked([layer(nothing) for layer in layers])
    live, dormant = (
        stacked([layer(x) for layer, x in zip(layers, inputs, strict=True)]) - bias
        for inputs in (live_input, dormant_input)
    )
    return live, dormant, bias


def finite_outputs(live: Tensor, dormant: Tensor) -> Tensor:
    """Say for each network whether the parts of an affine map's output are finite."""
    return torch.isfinite(live.flatten(1).sum(1) + dormant.flatten(1).sum(1))


def output_dim(layer: nn.Module) -> int:
    """Return the dimension of an affine map's output that counts the outputs."""
    return -1 if isinstance(layer, nn.Linear) else 1


def mean_magnitudes(part: Tensor, output_dim: int) -> Tensor:
    """Return the average absolute value of each output, (networks, outputs)."""
    dim = output_dim % (part.dim() - 1) + 1
    return part.abs().movedim(dim, 1).flatten(2).mean(dim=2)


def _expand(mask: Tensor, activations: Tensor, feature_dim: int | None) -> Tensor:
    """Reshape the networks' masks over neurons so that they broadcast against the activations."""
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean (True = dormant), got {mask.dtype}")
    shape = tuple(activations.shape[1:])
    mask = mask.to(activations.device).reshape(len(mask), -1)
    feature_dim = resolve_feature_dim(activations[0], feature_dim)
    neurons, entries = mask.shape[1], activations[0, 0].numel()
    if neurons == shape[feature_dim]:
        ones = (1,) * (len(shape) - 1 - feature_dim)
        return mask.view(len(mask), *(1,) * feature_dim, -1, *ones)
    if neurons == entries:
        return mask.view(len(mask), 1, *shape[1:])
    raise ValueError(
        f"mask has {neurons} entries, but activations of shape {shape} have "
        f"{shape[feature_dim]} features and {entries} features times positions"
    )
