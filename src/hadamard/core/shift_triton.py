"""Frames out of a replay, stacked and shifted, in one GPU kernel: no stacks in between."""

# Kernels are written in Triton's own language, which has no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORDS = 512
"""Of a program: four for each of its 128 threads."""


@triton.jit
def _shift_kernel(
    frames, index, shift, out,
    STACK: tl.constexpr, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    WORDS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    # One program per frame of a stack and part of it; channels are rows, one after another.
    made = tl.program_id(0)
    # A replay has more than 2**31 bytes, a frame has not.
    source = frames + tl.load(index + made).to(tl.int64) * (CHANNELS * HEIGHT * WIDTH)
    target = out + made.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH)
    down = tl.load(shift + made // STACK * 2).to(tl.int32)
    right = tl.load(shift + made // STACK * 2 + 1).to(tl.int32)

    # Words of a few pixels side by side in a row: read one by one, written at once.
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
    """Return ``shifted(taken(frames, index), shift)``.

    Frames are (count, channels, height, width), the index names them (..., stack), shifts are
    (..., 2). What the index names must be there: like any GPU kernel, this one does not ask.
    """
    _, channels, height, width = frames.shape
    *drawn, stack = index.shape
    if tuple(shift.shape) != (*drawn, 2):
        raise ValueError(f"shifts of shape {tuple(shift.shape)} for images {tuple(drawn)}")
    if not frames.is_contiguous():
        raise ValueError("frames must be contiguous: a replay is too large to copy")
    out = frames.new_empty(*drawn, stack * channels, height, width)
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
