"""Space-to-depth gives the same result as a strided convolution."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hadamard.layers.conv import space_to_depth


@pytest.mark.parametrize("size", [84, 83, 41, 20])
@pytest.mark.parametrize(("channels", "kernel", "stride"), [(4, 8, 4), (32, 4, 2), (1, 9, 3)])
def test_space_to_depth_equals_the_strided_convolution(
    channels: int, kernel: int, stride: int, size: int
) -> None:
    images = torch.randn(2, channels, size, size, dtype=torch.float64)
    weight = torch.randn(5, channels, kernel, kernel, dtype=torch.float64)
    blocks = space_to_depth(images, stride)
    assert blocks.is_contiguous(memory_format=torch.channels_last)
    out = F.conv2d(blocks, space_to_depth(weight, stride))
    torch.testing.assert_close(out, F.conv2d(images, weight, stride=stride))
