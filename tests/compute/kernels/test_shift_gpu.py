"""The shift kernel equals stacking, then shifting. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch

from hadamard.compute import kernels
from hadamard.learning import augment

pytestmark = pytest.mark.gpu


def test_the_shift_kernel_equals_stacking_then_shifting() -> None:
    draw = torch.Generator("cuda").manual_seed(0)
    fast = kernels.load("shift_triton")
    for shape in [(3, 84, 84), (3, 12, 10), (1, 5, 33), (4, 7, 1)]:
        frames = torch.randint(256, (50, *shape), dtype=torch.uint8, device="cuda", generator=draw)
        index = torch.randint(50, (16, 5, 3), device="cuda", generator=draw)
        shift = torch.randint(-6, 7, (16, 5, 2), device="cuda", generator=draw)
        expected = augment.shift_images(augment.stack_frames(frames, index), shift)
        assert torch.equal(fast.shifted_frames(frames, index, shift), expected)
    with pytest.raises(ValueError, match="shift must have shape"):
        fast.shifted_frames(frames, index, shift[:3])


def test_frames_at_the_end_of_a_large_replay() -> None:
    fast = kernels.load("shift_triton")
    count = 2**32 // (3 * 84 * 84) + 8
    frames = torch.zeros(count, 3, 84, 84, dtype=torch.uint8, device="cuda")
    frames[-8:].random_(0, 256)
    index = torch.randint(count - 8, count, (16, 3), device="cuda")
    shift = torch.randint(-4, 5, (16, 2), device="cuda")
    expected = augment.shift_images(augment.stack_frames(frames, index), shift)
    assert torch.equal(fast.shifted_frames(frames, index, shift), expected)
