"""The first convolution of a network that sees: images come as bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hadamard import kernels
from hadamard.layers.activations import activation_name
from hadamard.layers.branch import Branch
from hadamard.layers.hadamard import HadamardConv2d

# Not looked for at a call: the compiler reads those.
_kernels = kernels.load("hadamard.layers.pixels_triton")
_LARGEST_WINDOW = 128
"""Pixels that an output sees: the kernel's code grows with them."""


def of_pixels(layer: nn.Module, pixels: Tensor) -> Tensor:
    """Return ``layer(pixels / 255 - 0.5)`` of bytes, channels last in memory.

    On a GPU, where the layer is a convolution and an ELU, or a product of two such, all of it is
    one kernel: written as floats, the images would take most of the time.
    """
    if _kernels is not None and kernel_applies(layer, pixels):
        affine: nn.Conv2d = layer.affine  # type: ignore[assignment]
        product = isinstance(layer, HadamardConv2d)
        seen: Tensor = _kernels.pixel_conv(
            pixels, affine.weight, affine.bias, affine.stride[0], product
        )
        return seen
    bytes_last = pixels.contiguous(memory_format=torch.channels_last)
    darkest = torch.full((), -0.5, device=pixels.device)
    # In one pass, where division and subtraction would be three.
    out: Tensor = layer(torch.add(darkest, bytes_last, alpha=1 / 255))
    return out


def kernel_applies(layer: nn.Module, pixels: Tensor) -> bool:
    """Say whether the GPU kernel computes this layer."""
    if not pixels.is_cuda or not isinstance(layer, Branch | HadamardConv2d):
        return False
    affine = layer.affine
    return (
        pixels.dtype == torch.uint8
        and isinstance(affine, nn.Conv2d)
        and affine.weight.dtype == torch.float32
        and affine.weight[0].numel() <= _LARGEST_WINDOW
        and affine.stride[0] == affine.stride[1]
        and affine.padding == (0, 0)
        and affine.dilation == (1, 1)
        and affine.groups == 1
        and layer.norm is None
        and activation_name(layer.activation) == "elu"
        and getattr(layer, "branch_count", 2) == 2
    )
