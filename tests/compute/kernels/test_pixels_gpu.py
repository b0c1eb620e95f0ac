"""The pixel kernel equals the convolution of floats. Needs a CUDA device."""

from __future__ import annotations

import copy

import pytest
import torch

from hadamard.layers import Conv2dBranch, build, pixels

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("variant", ["plain", "hadamard"])
@pytest.mark.parametrize(
    ("outputs", "size", "kernel", "stride"),
    [(32, 84, 3, 2), (32, 41, 3, 2), (10, 20, 3, 1), (70, 31, 3, 3), (16, 12, 2, 4)],
)
def test_the_pixel_kernel_equals_the_convolution_of_floats(
    outputs: int,
    size: int,
    kernel: int,
    stride: int,
    variant: str,
    compiled: bool,
    tf32: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    recipe = Conv2dBranch(9, outputs, "elu", kernel_size=kernel, stride=stride)
    layer = build(variant, recipe).cuda()
    exact = copy.deepcopy(layer).double()
    images = torch.randint(256, (37, 9, size, size), dtype=torch.uint8, device="cuda")
    assert pixels.kernel_applies(layer, images)
    with monkeypatch.context() as without:
        without.setattr(pixels, "_kernels", None)
        expected = pixels.apply_to_pixels(exact, images.double())
    torch.compiler.reset()  # the number of layers one function is compiled for is limited
    apply = pixels.apply_to_pixels
    out = (torch.compile(apply, fullgraph=True) if compiled else apply)(layer, images)
    assert out.is_contiguous(memory_format=torch.channels_last)
    bound = 2e-3 if tf32 else 1e-5
    torch.testing.assert_close(out.double(), expected, rtol=bound, atol=bound)
    upstream = torch.randn_like(out)
    (out * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for ours, theirs in zip(layer.parameters(), exact.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() < bound * theirs.grad.norm()
