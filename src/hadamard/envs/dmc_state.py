"""DeepMind Control from states: the 28 tasks of dmc, observed as numbers.

An observation is all that dm_control observes of a task, flattened and joined in its order,
float32. The protocol is that of dmc: every action is played twice, rewards are summed, and an
episode is truncated after 500 steps (1,000 of dm_control's) and never terminates. No OpenGL is
needed. The state is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import Envs, State
from hadamard.envs import gl
from hadamard.envs.batch import BatchEnvs
from hadamard.envs.common import check_num_envs, check_task, spread
from hadamard.envs.dmc_common import AFTERWARDS, EXTRA, PICTURE, REQUIRES, ControlTask, tasks

__all__ = ["AFTERWARDS", "EXTRA", "REQUIRES", "StateTask", "make", "tasks"]


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
    check_task("dmc-state", task, tasks())
    check_num_envs(num_envs)
    seeds = spread(seed, num_envs)
    pictures = gl.Renderer(*PICTURE)
    return BatchEnvs([StateTask(task, one, pictures) for one in seeds], device)


class StateTask(ControlTask):
    """A task observed as numbers."""

    def __init__(self, task: str, seed: int, pictures: gl.Renderer) -> None:
        super().__init__(task, seed, pictures)
        size = _flat(self.task.get_observation(self.physics)).size
        self.spec = self.describe((size,), torch.float32)

    def reset(self) -> NDArray[np.float32]:
        """Start an episode."""
        return _flat(self.begin())

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], float, bool]:
        """Play an action twice; the rewards are summed."""
        reward = self.play(action)
        return self._observe(), reward, False

    def load_state_dict(self, state: State) -> NDArray[np.float32]:
        """Return to that state, and return the observation to act on there."""
        self.restore(state)
        return self._observe()

    def _observe(self) -> NDArray[np.float32]:
        return _flat(self.task.get_observation(self.physics))


def _flat(observations: Mapping[str, Any]) -> NDArray[np.float32]:
    return np.concatenate([np.ravel(part) for part in observations.values()]).astype(np.float32)
