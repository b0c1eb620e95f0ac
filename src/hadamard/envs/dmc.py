"""DeepMind Control from pixels: 28 tasks, with the protocol of the published results (DMC-Visual).

An observation is the last three color frames of 84x84 pixels, uint8, stacked along the channels,
the newest last; at the start of an episode it is the first frame three times. Frames come from
camera 0 (camera 2 for the quadruped). Every action is played twice and its rewards are summed; only
the frame after the second time is observed. An episode is truncated after 500 steps (1,000 of
dm_control's) and never terminates.

Frames are drawn with OpenGL, on a GPU or in software; see ``gl.py``. The state is exact: on the
same machine play continues from it bit for bit. Another OpenGL may draw a pixel differently.
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
from hadamard.envs.common import check_num_envs, check_task, environment_seeds
from hadamard.envs.dmc_common import AFTER_INSTALL, EXTRA, PICTURE, REQUIRES, ControlTask, tasks

__all__ = ["AFTER_INSTALL", "EXTRA", "REQUIRES", "PixelTask", "make", "prepare", "tasks"]

SIDE = 84
FRAMES = 3
COLORS = 3


def prepare() -> None:
    """Choose the OpenGL once for all workers."""
    gl.choose()


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
) -> Envs:
    """Make a batch of one task; training and evaluation do not differ."""
    del training
    check_task("dmc", task, tasks())
    check_num_envs(num_envs)
    seeds = environment_seeds(seed, num_envs)
    prepare()
    frame_renderer, picture_renderer = gl.Renderer(SIDE, SIDE), gl.Renderer(*PICTURE)
    return BatchEnvs(
        [PixelTask(task, task_seed, frame_renderer, picture_renderer) for task_seed in seeds],
        device,
    )


class PixelTask(ControlTask):
    """A task observed through its camera.

    Args:
        task: The task's name.
        seed: The seed of its episodes.
        frame_renderer: Draws the observed frames.
        picture_renderer: Draws the pictures that ``render`` returns.
    """

    def __init__(
        self, task: str, seed: int, frame_renderer: gl.Renderer, picture_renderer: gl.Renderer
    ) -> None:
        super().__init__(task, seed, picture_renderer)
        self.spec = self.make_spec((FRAMES * COLORS, SIDE, SIDE), torch.uint8, FRAMES)
        self._frame_renderer = frame_renderer
        self._stack = np.zeros(self.spec.obs_shape, dtype=np.uint8)

    def reset(self) -> NDArray[np.uint8]:
        """Start an episode."""
        self.begin()
        self._stack[:] = np.tile(self._frame(), (FRAMES, 1, 1))
        return self._stack.copy()

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.uint8], float, bool]:
        """Play an action twice; the rewards are summed."""
        reward = self.play(action)
        self._stack[:-COLORS] = self._stack[COLORS:]
        self._stack[-COLORS:] = self._frame()
        return self._stack.copy(), reward, False

    def state_dict(self) -> State:
        """Return the state of the simulation, and the stacked frames."""
        return {**super().state_dict(), "frames": self._stack.copy()}

    def load_state_dict(self, state: State) -> NDArray[np.uint8]:
        """Load a state; return the observation to act on."""
        self.restore(state)
        self._stack[:] = np.asarray(state["frames"])
        return self._stack.copy()

    def close(self) -> None:
        """Free OpenGL's memory."""
        self._frame_renderer.close()
        super().close()

    def _frame(self) -> NDArray[np.uint8]:
        return self.draw(self._frame_renderer).transpose(2, 0, 1)
