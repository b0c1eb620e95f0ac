"""Strided convolutions, as a GPU likes them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Conv2d(nn.Conv2d):
    """``nn.Conv2d``; on a GPU, a strided one that reads few channels works on blocks of pixels.

    With stride s, an s x s block of c channels is one pixel of c * s * s channels, and the kernel
    moves from block to block: the same sums, as a convolution with many channels and no stride.
    That is done where the kernel is whole blocks and at least twice as many channels come out as go
    in, for images with their channels last in memory (as those that come out then have).
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        stride = self.stride[0]
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
            return F.conv2d(in_blocks(input, stride), in_blocks(weight, stride), bias)
        plain: Tensor = super()._conv_forward(input, weight, bias)
        return plain


def in_blocks(images: Tensor, side: int) -> Tensor:
    """Make every block of pixels one pixel, its channels last in memory.

    Kernels are rearranged likewise. Of images, whatever is beyond the last whole block is left out:
    no kernel of whole blocks reaches it.
    """
    count, channels, *extents = images.shape
    height, width = (extent // side for extent in extents)
    whole = images[..., : height * side, : width * side]
    blocks = whole.reshape(count, channels, height, side, width, side)
    last = blocks.permute(0, 2, 4, 1, 3, 5).flatten(3)
    return last.permute(0, 3, 1, 2)
