"""Random shifts of images on their way out of the replay."""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard import kernels
from hadamard.core.jit import Compiler
from hadamard.core.replay import Draw, Replay


class ShiftedObservations:
    """``replay.observations``, every image shifted at random; vectors stay as they are.

    An image moves by up to ``largest`` pixels each way, all frames of its stack together, and its
    border is repeated: what cropping it out of a padded copy gives, as in DrQ-v2. Every observation
    of a sequence has a shift of its own.
    """

    def __init__(
        self, replay: Replay, largest: int, generator: torch.Generator, compiled: Compiler
    ) -> None:
        self.replay, self.generator = replay, generator
        self.largest = largest if len(replay.frame_shape) == 3 else 0
        self.shifted = compiled(shifted)
        on_gpu = replay.frames.is_cuda
        self.kernels = kernels.load("hadamard.core.shift_triton") if on_gpu else None

    def __call__(self, drawn: Draw, first: int, count: int) -> Tensor:
        """Return the observations of steps in a row, (draws, count, ...), the first so far on."""
        replay, largest = self.replay, self.largest
        if largest == 0:
            return replay.observations(drawn, first, count)
        shift = torch.randint(
            -largest,
            largest + 1,
            (len(drawn.slots), count, 2),
            generator=self.generator,
            device=self.generator.device,
        )
        frame = drawn.envs[:, None, None] * replay.slots + replay.windows(drawn, first, count)
        frames = replay.frames.flatten(0, 1)
        if self.kernels is not None:
            images: Tensor = self.kernels.shifted_frames(frames, frame, shift)
        else:
            images = self.shifted(taken(frames, frame), shift.to(frames.device))
        return images.to(replay.device)


def taken(frames: Tensor, index: Tensor) -> Tensor:
    """Return stacks of the frames named (..., stack), one after another in their channels."""
    flat = frames.flatten(1)
    # Whole frames move in the widest words that they are made of: bytes would take 8 times as long.
    words = flat.view(torch.int64) if flat[0].nbytes % 8 == 0 else flat
    found = words.index_select(0, index.flatten()).view(frames.dtype)
    return found.view(*index.shape, *frames.shape[1:]).flatten(index.dim() - 1, index.dim())


def shifted(images: Tensor, shift: Tensor) -> Tensor:
    """Return images (..., channels, height, width), each shifted so far down and to the right.

    Examples:
        >>> shifted(torch.arange(9).view(1, 1, 3, 3), torch.tensor([[1, -1]]))
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
    moved = flat.gather(-1, pixel[..., None, :].expand_as(flat))
    return moved.view_as(images)
