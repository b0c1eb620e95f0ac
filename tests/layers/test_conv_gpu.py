"""Strided convolutions on a GPU equal PyTorch's. Needs a CUDA device."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from hadamard.layers import conv

pytestmark = pytest.mark.gpu

SHAPES = [
    (4, 32, 8, 4),
    (9, 32, 3, 2),
    (32, 64, 4, 2),
    (9, 32, 3, 1),
    (4, 32, 8, 4, 2),
    (32, 32, 3, 2),
]
WITH_SPACE_TO_DEPTH = (SHAPES[0], SHAPES[2])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [84, 83, 41])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_strided_convolution_equals_pytorchs(
    shape: tuple[int, ...],
    size: int,
    layout: torch.memory_format,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    counted = Mock(side_effect=conv.space_to_depth)
    monkeypatch.setattr(conv, "space_to_depth", counted)
    ours = conv.Conv2d(*shape).cuda()
    theirs = nn.Conv2d(*shape).cuda()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(16, shape[0], size, size, device="cuda").to(memory_format=layout)
    outputs = [layer(images) for layer in (ours, theirs)]
    assert counted.called == (layout == torch.channels_last and shape in WITH_SPACE_TO_DEPTH)
    assert outputs[0].is_contiguous(memory_format=layout)
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
    upstream = torch.randn_like(outputs[0])
    for layer, output in zip((ours, theirs), outputs, strict=True):
        output.backward(upstream)
        assert layer.weight.grad is not None
    tolerance = {"rtol": 1e-3, "atol": 1e-3 * float(theirs.weight.grad.abs().max())}
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, **tolerance)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad, rtol=1e-3, atol=1e-2)
