"""Conv2d with a space-to-depth fast path on GPUs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Conv2d(nn.Conv2d):
    """``nn.Conv2d`` that is faster on GPUs where it is strided and has few input channels.

    With stride s, every s x s block of c-channel pixels becomes one pixel of c * s * s channels,
    which a convolution without stride then reads. It computes the same sums, and GPUs are faster
    with many channels. This is done where the kernel size is a multiple of the stride and there
    are at least twice as many output as input channels, for images in channels-last memory format
    (which the outputs then have too).
    """

    stacked = False
    """Whether many networks are computed at once (``compute.stack``): a product of patches and
    kernels is then one batched product."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        stride = self.stride[0]
        if self.stacked:
            return patch_product(input, weight, bias, self.stride)
        if (
            stride > 1
            and self.stride == (stride, stride)
            and self.out_channels >= 2 * self.in_channels
            and self.padding == (0, 0)
            and self.dilation == (1, 1)
            and self.groups == 1
            and input.is_cuda
            and input.dim() == 4
            and not input.is_contiguous()
            and input.is_contiguous(memory_format=torch.channels_last)
            and self.kernel_size[0] % stride == self.kernel_size[1] % stride == 0
        ):
            return F.conv2d(space_to_depth(input, stride), space_to_depth(weight, stride), bias)
        out: Tensor = super()._conv_forward(input, weight, bias)
        return out


_CHANNELS = 16
"""Channels of images that are not observations, at least: they need a gradient."""


def patch_product(
    images: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]
) -> Tensor:
    """Convolve without padding as a product of patches and kernels."""
    if images.shape[1] >= _CHANNELS:
        return _slice_product(images, weight, bias, stride)
    outputs, _, height, width = weight.shape
    patches = images.unfold(2, height, stride[0]).unfold(3, width, stride[1])
    rows, columns = patches.shape[2:4]
    flat = patches.permute(0, 2, 3, 1, 4, 5).reshape(len(images) * rows * columns, -1)
    products = F.linear(flat, weight.reshape(outputs, -1), bias)
    return products.view(len(images), rows, columns, outputs).permute(0, 3, 1, 2)


def _slice_product(
    images: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]
) -> Tensor:
    """Do the same with patches that are joined from shifted images.

    Unlike those of ``unfold``, they have a gradient that is computed for many networks at once.
    """
    (down, across), (height, width) = stride, weight.shape[2:]
    if 1 < down == across and height % down == width % down == 0:
        images, weight = space_to_depth(images, down), space_to_depth(weight, down)
        (down, across), (height, width) = (1, 1), weight.shape[2:]
    pixels = images.movedim(1, -1)
    rows, columns = (
        (pixels.shape[1] - height) // down + 1,
        (pixels.shape[2] - width) // across + 1,
    )
    shifted = [
        pixels[:, y : y + down * (rows - 1) + 1 : down, x : x + across * (columns - 1) + 1 : across]
        for y in range(height)
        for x in range(width)
    ]
    patches = torch.cat(shifted, dim=-1)
    kernels = weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    return F.linear(patches, kernels, bias).movedim(-1, 1)


def space_to_depth(images: Tensor, side: int) -> Tensor:
    """Turn every side x side block of pixels into one pixel, in channels-last memory format.

    Kernels of a convolution are rearranged the same way. Pixels beyond the last complete block are
    dropped: no kernel made of complete blocks reaches them.
    """
    count, channels, *extents = images.shape
    height, width = (extent // side for extent in extents)
    complete = images[..., : height * side, : width * side]
    blocks = complete.reshape(count, channels, height, side, width, side)
    channels_last = blocks.permute(0, 2, 4, 1, 3, 5).flatten(3)
    return channels_last.permute(0, 3, 1, 2)
