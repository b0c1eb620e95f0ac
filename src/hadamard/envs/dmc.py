"""DeepMind Control from pixels: 28 tasks, with the protocol of the published results (DMC-Visual).

An observation is the last three frames of 84x84 pixels in colour, uint8, along the channels: the
newest last, and the first frame of an episode three times. Camera 0 looks on (the quadruped's is
camera 2). Every action is played twice and rewards are summed; only the frame after the second
time is seen. An episode is truncated after 500 steps (1,000 of dm_control's) and never terminates.

Frames are drawn with OpenGL, on a GPU or in software; see ``gl.py``. The state is exact: on the
same machine play continues from it bit for bit. Another OpenGL may shade a pixel differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import Envs, State
from hadamard.envs import gl
from hadamard.envs.batch import BatchEnvs
from hadamard.envs.common import check_num_envs, check_task, spread
from hadamard.envs.dmc_common import AFTERWARDS, EXTRA, PICTURE, REQUIRES, ControlTask, tasks

__all__ = ["AFTERWARDS", "EXTRA", "REQUIRES", "PixelTask", "make", "prepare", "tasks"]

SIDE = 84
FRAMES = 3
COLOURS = 3


def prepare() -> None:
    """Find the OpenGL that works, once for all workers."""
    gl.choose()


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
) -> Envs:
    """Make a batch of one task; training and evaluation are alike."""
    del training
    check_task("dmc", task, tasks())
    check_num_envs(num_envs)
    seeds = spread(seed, num_envs)
    prepare()
    frames, pictures = gl.Renderer(SIDE, SIDE), gl.Renderer(*PICTURE)
    return BatchEnvs([PixelTask(task, one, frames, pictures) for one in seeds], device)


class PixelTask(ControlTask):
    """A task observed through its camera."""

    def __init__(self, task: str, seed: int, frames: gl.Renderer, pictures: gl.Renderer) -> None:
        super().__init__(task, seed, pictures)
        self.spec = self.describe((FRAMES * COLOURS, SIDE, SIDE), torch.uint8, FRAMES)
        self._frames = frames
        self._stack = np.zeros(self.spec.obs_shape, dtype=np.uint8)

    def reset(self) -> NDArray[np.uint8]:
        """Start an episode."""
        self.begin()
        self._stack[:] = np.tile(self._look(), (FRAMES, 1, 1))
        return self._stack.copy()

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.uint8], float, bool]:
        """Play an action twice; the rewards are summed."""
        reward = self.play(action)
        self._stack[:-COLOURS] = self._stack[COLOURS:]
        self._stack[-COLOURS:] = self._look()
        return self._stack.copy(), reward, False

    def state_dict(self) -> State:
        """Return the state of the simulation, and the frames seen last."""
        return {**super().state_dict(), "frames": self._stack.copy()}

    def load_state_dict(self, state: State) -> NDArray[np.uint8]:
        """Return to that state, and return the observation to act on there."""
        self.restore(state)
        self._stack[:] = np.asarray(state["frames"])
        return self._stack.copy()

    def close(self) -> None:
        """Free what OpenGL holds."""
        self._frames.close()
        super().close()

    def _look(self) -> NDArray[np.uint8]:
        return self.draw(self._frames).transpose(2, 0, 1)
