"""Encoders from observations to representations; the observation's shape decides which one.

The Nature CNN for Atari's 84 x 84 frames, the MinAtar CNN for small grids, two dense layers for
vectors. The network specification says which layers get the layer variant.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import Conv2dBranch, LinearBranch
from hadamard.nets.hidden import Hidden, Init

# These variants go into this many of the last layers, whatever --net.where says: 2HR is HR in the
# last two layers, the widened control widens the last layer alone, and Hadamax is all of them.
_LAST = {"hadamard2": ("hadamard", 2), "widened": ("widened", 1), "hadamax": ("hadamax", 100)}


@runtime_checkable
class HasOwnSize(Protocol):
    """A layer whose output has another size than that of an unpadded convolution."""

    def size_after(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the height and width of the output for those of the input."""


class Encoder(nn.Module):
    """Hidden layers in a row; feature maps are flattened before the first dense layer.

    They are flattened in memory order, channels last, which needs no copy.
    """

    stacked = False
    """Whether many encoders are computed at once (``compute.stack``)."""

    def __init__(self, hidden: Sequence[Hidden], flatten_before: int, scale: float) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(hidden)
        self.flatten_before, self.scale = flatten_before, scale
        self.dtype = torch.float32
        for layer, reader in itertools.pairwise(hidden):
            layer.readers.extend(reader.affines)

    @property
    def outputs(self) -> int:
        """Width of the representation."""
        return self.layers[-1].outputs

    @property
    def layers(self) -> list[Hidden]:
        """The hidden layers, first to last."""
        return [layer for layer in self.hidden if isinstance(layer, Hidden)]

    def forward(self, obs: Tensor) -> Tensor:
        """Encode a batch of observations as they come from the environment."""
        # Convolutions, and norms over channels, are fastest where channels are last in memory.
        images = obs.dim() == 4 and not self.stacked  # stacked convolutions choose their own layout
        layout = torch.channels_last if images else torch.preserve_format
        if images and not obs.is_cuda:
            # On a CPU, reordering bytes and then converting them is faster than both at once.
            obs = obs.contiguous(memory_format=layout)
        x = obs.to(self.dtype, memory_format=layout)
        if self.scale != 1.0:
            x = x * self.scale
        for i, layer in enumerate(self.hidden):
            if i == self.flatten_before and x.dim() == 4:
                x = x.movedim(1, -1).flatten(1)
            x = layer(x)
        return x


def make_encoder(env: EnvSpec, net: NetSpec, init: Init) -> Encoder:
    """Build the encoder for an environment's observations."""
    if net.where not in ("last", "all"):
        raise ValueError(
            f"--net.where {net.where} is not possible with this algorithm: choose last or all"
        )
    shape = env.obs_shape
    if len(shape) == 1:
        plan: list[Conv2dBranch | LinearBranch] = [
            LinearBranch(shape[0], net.width),
            LinearBranch(net.width, net.width),
        ]
    elif len(shape) == 3 and min(shape[1:]) >= 36:
        plan = [
            Conv2dBranch(shape[0], 32, kernel_size=8, stride=4),
            Conv2dBranch(32, 64, kernel_size=4, stride=2),
            Conv2dBranch(64, 64, kernel_size=3, stride=1),
            LinearBranch(64, net.width),
        ]
    elif len(shape) == 3:
        plan = [Conv2dBranch(shape[0], 16, kernel_size=3), LinearBranch(16, net.width)]
    else:
        raise ValueError(f"no encoder for observations of shape {shape}: vectors and images only")
    hidden = _hidden_layers(plan, shape, net, init)
    flatten_before = sum(isinstance(recipe, Conv2dBranch) for recipe in plan)
    # Frames of 0 to 255 are scaled to 0 to 1; MinAtar's grids are 0 and 1 already.
    return Encoder(hidden, flatten_before, env.pixel_scale)


def _hidden_layers(
    plan: Sequence[Conv2dBranch | LinearBranch], shape: tuple[int, ...], net: NetSpec, init: Init
) -> list[Hidden]:
    variant, last = _LAST.get(net.layer, (net.layer, 1 if net.where == "last" else len(plan)))
    normed = 1 if net.where == "last" else len(plan)
    hidden: list[Hidden] = []
    features, size = shape[0], shape[1:]
    for remaining, recipe in zip(range(len(plan), 0, -1), plan, strict=True):
        if isinstance(recipe, LinearBranch):
            for extent in size:
                features *= extent
            size = ()
        norm = net.norm if net.norm != "none" and remaining <= normed else None
        if norm == "layer_map" and isinstance(recipe, LinearBranch):
            norm = "layer"  # for a vector the two are the same
        hidden.append(
            Hidden(
                variant if remaining <= last else "plain",
                recipe.varied(inputs=features, activation=net.activation, norm=norm),
                init,
            )
        )
        features = hidden[-1].outputs
        if isinstance(recipe, Conv2dBranch):
            size = _size_after(hidden[-1].layer, recipe, size)
    return hidden


def _size_after(layer: nn.Module, recipe: Conv2dBranch, size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the height and width of what a convolution outputs."""
    if isinstance(layer, HasOwnSize):
        return layer.size_after(size)
    kernel, stride = recipe.kernel_size, recipe.stride
    assert isinstance(kernel, int)
    assert isinstance(stride, int)
    return tuple((extent - kernel) // stride + 1 for extent in size)
