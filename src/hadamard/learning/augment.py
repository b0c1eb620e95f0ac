"""Random shifts of images that are drawn from a replay."""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard.compute import kernels
from hadamard.compute.jit import compiler
from hadamard.learning.replay import Indices, Replay


class ShiftedObservations:
    """``replay.observations`` with every image shifted at random; vectors stay as they are.

    An image moves by up to ``largest`` pixels each way, all frames of its stack together, and its
    border is repeated: the same as cropping it from a padded copy, as DrQ-v2 does. Each observation
    of a sequence is shifted independently.
    """

    def __init__(
        self, replay: Replay, largest: int, generator: torch.Generator, compile_setting: str
    ) -> None:
        self.replay, self.generator = replay, generator
        self.largest = largest if len(replay.frame_shape) == 3 else 0
        self.shift_images = compiler(compile_setting, replay.frames.device)(shift_images)
        on_gpu = replay.frames.is_cuda
        self.kernels = kernels.load("shift_triton") if on_gpu else None

    def __call__(self, indices: Indices, first: int, count: int) -> Tensor:
        """Return the observations of steps in a row, as ``replay.observations`` does."""
        replay, largest = self.replay, self.largest
        if largest == 0:
            return replay.observations(indices, first, count)
        shift = torch.randint(
            -largest,
            largest + 1,
            (len(indices.slots), count, 2),
            generator=self.generator,
            device=self.generator.device,
        )
        slots = replay.frame_slots(indices, first, count)
        index = indices.envs[:, None, None] * replay.slots + slots
        frames = replay.frames.flatten(0, 1)
        if self.kernels is not None:
            images: Tensor = self.kernels.shifted_frames(frames, index, shift)
        else:
            images = self.shift_images(stack_frames(frames, index), shift.to(frames.device))
        return images.to(replay.device)


def stack_frames(frames: Tensor, index: Tensor) -> Tensor:
    """Return the frames at ``index`` (..., stack), those of a stack joined along the channels."""
    flat = frames.flatten(1)
    # Frames are copied 8 bytes at a time where their size allows: single bytes take 8x as long.
    words = flat.view(torch.int64) if flat[0].nbytes % 8 == 0 else flat
    stacks = words.index_select(0, index.flatten()).view(frames.dtype)
    return stacks.view(*index.shape, *frames.shape[1:]).flatten(index.dim() - 1, index.dim())


def shift_images(images: Tensor, shift: Tensor) -> Tensor:
    """Return images (..., channels, height, width), each shifted down and right by ``shift``.

    Examples:
        >>> shift_images(torch.arange(9).view(1, 1, 3, 3), torch.tensor([[1, -1]]))
        tensor([[[[1, 2, 2],
                  [1, 2, 2],
                  [4, 5, 5]]]])
    """
    height, width = images.shape[-2:]
    row = torch.arange(height, device=images.device) - shift[..., :1]
    column = torch.arange(width, device=images.device) - shift[..., 1:]
    row, column = row.clamp(0, height - 1), column.clamp(0, width - 1)
    pixel = (row[..., None] * width + column[..., None, :]).flatten(-2)
    flat = images.flatten(-2)
    shifted = flat.gather(-1, pixel[..., None, :].expand_as(flat))
    return shifted.view_as(images)
