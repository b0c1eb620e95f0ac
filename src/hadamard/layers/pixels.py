"""The convolutions of a network that sees: images come as bytes, then as feature maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hadamard import kernels
from hadamard.layers.activations import activation_name
from hadamard.layers.branch import Branch
from hadamard.layers.hadamard import HadamardConv2d

# Not looked for at a call: the compiler reads those.
_of_pixels = kernels.load("hadamard.layers.pixels_triton")
_of_maps = kernels.load("hadamard.layers.maps_triton")
_LARGEST_WINDOW = 128
"""Pixels that an output sees: the kernel's code grows with them."""


def of_pixels(layer: nn.Module, pixels: Tensor) -> Tensor:
    """Return ``layer(pixels / 255 - 0.5)`` of bytes, channels last in memory.

    On a GPU, where the layer is a convolution and an ELU, or a product of two such, all of it is
    one kernel: written as floats, the images would take most of the time.
    """
    if _of_pixels is not None and pixel_kernel_applies(layer, pixels):
        seen: Tensor = _of_pixels.pixel_conv(pixels, *_call(layer))
        return seen
    bytes_last = pixels.contiguous(memory_format=torch.channels_last)
    darkest = torch.full((), -0.5, device=pixels.device)
    # In one pass, where division and subtraction would be three.
    out: Tensor = layer(torch.add(darkest, bytes_last, alpha=1 / 255))
    return out


def of_maps(layer: nn.Module, maps: Tensor) -> Tensor:
    """Return ``layer(maps)``, on a GPU in one kernel likewise, where no gradient is asked for."""
    if _of_maps is not None and map_kernel_applies(layer, maps):
        seen: Tensor = _of_maps.map_conv(maps, *_call(layer))
        return seen
    out: Tensor = layer(maps)
    return out


def pixel_kernel_applies(layer: nn.Module, pixels: Tensor) -> bool:
    """Say whether the GPU kernel computes this layer of bytes."""
    if not pixels.is_cuda or pixels.dtype != torch.uint8 or not _is_elu_convolution(layer):
        return False
    return layer.get_parameter("affine.weight")[0].numel() <= _LARGEST_WINDOW


def map_kernel_applies(layer: nn.Module, maps: Tensor) -> bool:
    """Say whether the GPU kernel computes this layer of feature maps."""
    if not maps.is_cuda or maps.dtype != torch.float32 or not _is_elu_convolution(layer):
        return False
    weight = layer.get_parameter("affine.weight")
    return not (torch.is_grad_enabled() and (maps.requires_grad or weight.requires_grad))


def _is_elu_convolution(layer: nn.Module) -> bool:
    if not isinstance(layer, Branch | HadamardConv2d):
        return False
    affine = layer.affine
    return (
        isinstance(affine, nn.Conv2d)
        and affine.weight.dtype == torch.float32
        and affine.stride[0] == affine.stride[1]
        and affine.padding == (0, 0)
        and affine.dilation == (1, 1)
        and affine.groups == 1
        and layer.norm is None
        and activation_name(layer.activation) == "elu"
        and getattr(layer, "branch_count", 2) == 2
    )


def _call(layer: nn.Module) -> tuple[Tensor, Tensor | None, int, bool]:
    affine: nn.Conv2d = layer.affine  # type: ignore[assignment]
    return affine.weight, affine.bias, affine.stride[0], isinstance(layer, HadamardConv2d)
