"""Pictures that environments render."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs
from hadamard.envs import make
from hadamard.training import film

pytestmark = pytest.mark.skipif(
    bool(envs.missing("minatar"))
    or not film._is_installed("PIL")
    or not film._is_installed("imageio_ffmpeg"),
    reason="needs the minatar and play extras",
)


def tasks() -> Iterator[Any]:
    for suite in ("minatar", "probe", "atari"):
        skip = pytest.mark.skipif(bool(envs.missing(suite)), reason=f"needs the {suite} extra")
        for task in ("Breakout",) if suite == "atari" else envs.tasks(suite):
            yield pytest.param(f"{suite}/{task}", marks=skip)


@pytest.mark.parametrize("name", list(tasks()))
def test_a_picture_of_the_first_environment(name: str) -> None:
    batch = make(name, 0, 2)
    spec = batch.spec
    batch.reset()
    pictures = set()
    random = torch.Generator().manual_seed(0)
    for _ in range(12):
        picture = batch.render()
        assert picture.dtype == np.uint8
        height, width, colors = picture.shape
        assert 200 <= height <= 500
        assert 200 <= width <= 500
        assert colors == 3
        assert np.array_equal(picture, batch.render())  # rendering changes nothing
        pictures.add(picture.tobytes())
        if spec.continuous:
            batch.step(2 * torch.rand(2, spec.action_size, generator=random) - 1)
        else:
            batch.step(torch.randint(spec.num_actions, (2,), generator=random))
    batch.close()
    constant = ("probe/constant", "probe/action")  # each step is an episode that looks the same
    assert len(pictures) > 1 or name in constant


@pytest.mark.skipif(bool(envs.missing("atari")), reason="needs the atari extra")
def test_atari_renders_in_color() -> None:
    batch = make("atari/Breakout", 0, 1)
    batch.reset()
    picture = batch.render()
    batch.close()
    assert picture.shape == (420, 320, 3)
    assert (picture[..., 0] != picture[..., 2]).any()


def test_minatar_channels_have_their_own_colors() -> None:
    batch: Any = make("minatar/seaquest", 0, 1)
    obs = batch.reset()[0]
    grid = batch.render()[20::40, 20::40]
    lit = obs.bool().any(0).numpy()
    background = grid[~lit]
    assert (background == background[0]).all()
    for channel in obs.bool().numpy():
        others = obs.bool().numpy().sum(0) - channel
        colors = {tuple(color) for color in grid[channel & (others == 0)].tolist()}
        assert len(colors) <= 1
        assert tuple(background[0].tolist()) not in colors
    from hadamard.envs.minatar import _COLORS

    assert len({tuple(color) for color in _COLORS.tolist()}) == len(_COLORS) == 11


def test_workers_render_the_first_environment() -> None:
    workers = make("probe/image", 3, 4, workers=2)
    try:
        obs = workers.reset()
        lit = int(obs[0, 0, 0].argmax())
        column = workers.render()[0, :, 0].argmax()
        assert column == lit * 24
    finally:
        workers.close()
