"""Random shifts equal crops of a padded image."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import Tensor

from hadamard.core.types import EnvSpec, Step
from hadamard.learning.augment import ShiftedObservations, shift_images, stack_frames
from hadamard.learning.replay import Indices, Replay
from tests.support.replay import Episodes

CPU = torch.device("cpu")


def padded_crop(image: Tensor, down: int, right: int, pad: int) -> Tensor:
    """Return the shifted image, as a crop of a padded copy."""
    height, width = image.shape[-2:]
    padded = F.pad(image[None].float(), (pad,) * 4, mode="replicate")[0]
    crop = padded[:, pad - down : pad - down + height, pad - right : pad - right + width]
    return crop.to(image.dtype)


def pictures(steps: int = 40) -> Replay:
    """Return a replay of random frames, 12 x 10 in three colors, stacked by three."""
    spec = EnvSpec((9, 12, 10), torch.uint8, frames=3, action_size=2)
    draw = torch.Generator().manual_seed(1)
    replay = Replay(spec, 2, 60, CPU, horizon=5, prioritized=True)
    stack = torch.randint(256, (2, 9, 12, 10), generator=draw, dtype=torch.uint8)
    replay.begin(stack)
    none = torch.zeros(2, dtype=torch.bool)
    for _ in range(steps):
        new = torch.randint(256, (2, 3, 12, 10), generator=draw, dtype=torch.uint8)
        stack = torch.cat([stack[:, 3:], new], 1)
        replay.add(torch.zeros(2, 2), Step(stack, torch.zeros(2), none, none))
    return replay


def test_a_shift_equals_a_crop_of_a_padded_image() -> None:
    replay, generator = pictures(), torch.Generator().manual_seed(0)
    observe = ShiftedObservations(replay, 4, generator, "off")
    shifts: set[tuple[int, int]] = set()
    for _ in range(16):
        indices = replay.draw(16, generator)
        before = generator.get_state()
        images = observe(indices, 1, 3)
        generator.set_state(before)
        shift = torch.randint(-4, 5, (16, 3, 2), generator=generator)
        plain = replay.observations(indices, 1, 3)
        assert images.shape == plain.shape == (16, 3, 9, 12, 10)
        assert images.dtype == torch.uint8
        for i, t in itertools.product(range(16), range(3)):
            down, right = shift[i, t].tolist()
            # All nine channels, hence all frames of the stack, are shifted together.
            assert torch.equal(images[i, t], padded_crop(plain[i, t], down, right, 4))
            shifts.add((down, right))
    assert len(shifts) == 81  # all of them


def test_shifts_are_uniform_and_independent_between_steps() -> None:
    replay, generator = pictures(), torch.Generator().manual_seed(0)
    frames = replay.frames
    frames.copy_(torch.arange(120, dtype=torch.uint8).view(12, 10).expand_as(frames))
    observe = ShiftedObservations(replay, 4, generator, "off")
    images = observe(Indices(torch.zeros(4_000).long(), torch.full((4_000,), 9)), 0, 2)
    corner = images[:, :, 0, 5, 5].long()  # shifted by (d, r), it is the pixel from (5 - d, 5 - r)
    down, right = 5 - corner // 10, 5 - corner % 10
    assert down.abs().max() == right.abs().max() == 4
    counts = torch.bincount(((down + 4) * 9 + right + 4).flatten(), minlength=81)
    assert chisquare(counts.numpy()).pvalue > 0.01
    assert 0 < (down[:, 0] == down[:, 1]).double().mean() < 0.2
    assert (images == images[:, :, :1]).all()


def test_vectors_are_not_shifted() -> None:
    episodes = Episodes(1, 1, 0.0, 0.0)
    spec = EnvSpec((2,), torch.float32, action_size=2)
    replay = Replay(spec, 1, 40, CPU, horizon=2, prioritized=True)
    replay.begin(episodes.obs().flatten(1))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        action, step = episodes.step()
        replay.add(action, replace(step, obs=step.obs.flatten(1)))
    indices = replay.draw(8, generator)
    before = generator.get_state()
    observe = ShiftedObservations(replay, 4, generator, "off")
    assert torch.equal(observe(indices, 0, 3), replay.observations(indices, 0, 3))
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("width", [7, 8])  # frames of whole 8-byte words, and others
def test_a_shift_of_zero_changes_nothing(width: int) -> None:
    frames = torch.randint(256, (5, 3, 6, width), dtype=torch.uint8)
    stacks = stack_frames(frames, torch.tensor([[1, 2], [4, 0]]))
    images = shift_images(stacks, torch.zeros(2, 2, dtype=torch.int64))
    expected = torch.stack([torch.cat([frames[1], frames[2]]), torch.cat([frames[4], frames[0]])])
    assert torch.equal(images, expected)
