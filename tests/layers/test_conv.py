"""Space-to-depth gives the same result as a strided convolution."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hadamard.layers.conv import Conv2d, patch_product, space_to_depth


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


@pytest.mark.parametrize(
    ("kernel", "stride"), [((3, 3), (1, 1)), ((8, 8), (4, 4)), ((4, 2), (2, 1)), ((1, 5), (1, 3))]
)
@pytest.mark.parametrize("bias", [True, False])
def test_products_of_patches_equal_the_convolution(
    kernel: tuple[int, int], stride: tuple[int, int], bias: bool
) -> None:
    images = torch.randn(3, 4, 12, 17, dtype=torch.float64)
    layer = Conv2d(4, 6, kernel, stride, bias=bias, dtype=torch.float64)
    expected = F.conv2d(images, layer.weight, layer.bias, stride)
    products = patch_product(images, layer.weight, layer.bias, layer.stride)
    torch.testing.assert_close(products, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(layer(images), expected)
    layer.stacked = True
    assert torch.equal(layer(images), products)


def test_products_of_patches_have_the_convolutions_gradients() -> None:
    images = torch.randn(2, 3, 7, 7, dtype=torch.float64, requires_grad=True)
    layer = Conv2d(3, 5, 3, stride=2, dtype=torch.float64)
    inputs = images, layer.weight, layer.bias
    gradients = []
    for layer.stacked in (False, True):
        gradients.append(torch.autograd.grad((layer(images) ** 2).sum(), inputs))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
