"""The first layer of an image network, applied to pixels stored as bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hadamard.compute import kernels
from hadamard.layers.activations import activation_name
from hadamard.layers.branch import Branch
from hadamard.layers.fused import HadamardConv2d

# Loaded here because torch.compile would trace a call of ``load`` inside the function.
_kernels = kernels.load("pixels_triton")
_MAX_WINDOW = 128
"""Pixels times channels that an output sees: the kernel's code grows with them."""


def apply_to_pixels(layer: nn.Module, pixels: Tensor) -> Tensor:
    """Return ``layer(pixels / 255 - 0.5)`` for bytes, in channels-last memory format.

    On a GPU, a convolution with ELU (or a product of two) is one kernel from the bytes on. Writing
    the images as floats first would take most of the time.
    """
    if _kernels is not None and kernel_applies(layer, pixels):
        affine: nn.Conv2d = layer.affine  # type: ignore[assignment]
        product = isinstance(layer, HadamardConv2d)
        activated: Tensor = _kernels.pixel_conv(
            pixels, affine.weight, affine.bias, affine.stride[0], product
        )
        return activated
    channels_last = pixels.contiguous(memory_format=torch.channels_last)
    minus_half = torch.full((), -0.5, device=pixels.device)
    # One operation instead of three (conversion, division and subtraction).
    out: Tensor = layer(torch.add(minus_half, channels_last, alpha=1 / 255))
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
        and affine.weight[0].numel() <= _MAX_WINDOW
        and affine.stride[0] == affine.stride[1]
        and affine.padding == (0, 0)
        and affine.dilation == (1, 1)
        and affine.groups == 1
        and layer.norm is None
        and activation_name(layer.activation) == "elu"
        and getattr(layer, "branch_count", 2) == 2
    )
