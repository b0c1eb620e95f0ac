"""GPU kernel that stacks and shifts frames of a replay, without storing the unshifted stacks."""

# Triton kernels have no type annotations.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORDS = 512
"""Words that a program copies: four for each of its 128 threads."""


@triton.jit
def _shift_kernel(
    frames, index, shift, out,
    STACK: tl.constexpr, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    WORDS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    # One program copies a part of one frame of a stack. Its channels are treated as more rows.
    frame_number = tl.program_id(0)
    # 64 bits: a replay may have more than 2**31 bytes.
    source = frames + tl.load(index + frame_number).to(tl.int64) * (CHANNELS * HEIGHT * WIDTH)
    target = out + frame_number.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH)
    down = tl.load(shift + frame_number // STACK * 2).to(tl.int32)
    right = tl.load(shift + frame_number // STACK * 2 + 1).to(tl.int32)

    # A word is a few neighboring pixels of a row: read one by one, written together.
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    row, first = word // (WIDTH // PIXELS), word % (WIDTH // PIXELS) * PIXELS
    from_height = tl.minimum(tl.maximum(row % HEIGHT - down, 0), HEIGHT - 1)
    from_row = (row - row % HEIGHT + from_height) * WIDTH
    within = tl.arange(0, PIXELS)[None, :]
    from_column = tl.minimum(tl.maximum(first[:, None] + within - right, 0), WIDTH - 1)
    inside = (word < CHANNELS * HEIGHT * (WIDTH // PIXELS))[:, None]
    pixel = tl.load(source + (from_row[:, None] + from_column), mask=inside)
    tl.store(target + (word[:, None] * PIXELS + within), pixel, mask=inside)


def shifted_frames(frames: Tensor, index: Tensor, shift: Tensor) -> Tensor:
    """Return ``shift_images(stack_frames(frames, index), shift)``.

    Frames have shape (count, channels, height, width), the index (..., stack) and shifts (..., 2).
    The index is not checked, so it must be in range.
    """
    _, channels, height, width = frames.shape
    *batch_shape, stack = index.shape
    if tuple(shift.shape) != (*batch_shape, 2):
        raise ValueError(
            f"shift must have shape {(*batch_shape, 2)} for this index, got {tuple(shift.shape)}"
        )
    if not frames.is_contiguous():
        raise ValueError("frames must be contiguous (a replay is too large to copy)")
    out = frames.new_empty(*batch_shape, stack * channels, height, width)
    if out.numel():
        pixels = math.gcd(width, 4)
        parts = triton.cdiv(channels * height * width, _WORDS * pixels)
        with torch.cuda.device_of(frames):
            _shift_kernel[index.numel(), parts](
                frames,
                index.contiguous(),
                shift.contiguous(),
                out,
                STACK=stack,
                CHANNELS=channels,
                HEIGHT=height,
                WIDTH=width,
                WORDS=_WORDS,
                PIXELS=pixels,
            )
    return out
