"""DeepMind Control from states: the 28 tasks of dmc, observed as numbers.

An observation is all of dm_control's observations of a task, flattened and joined in their order,
as float32. The protocol is that of dmc: every action is played twice, rewards are summed, and an
episode is truncated after 500 steps (1,000 of dm_control's) and never terminates. OpenGL is needed
only for pictures. The state is exact.
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
from hadamard.envs.common import check_num_envs, check_task, environment_seeds
from hadamard.envs.dmc_common import AFTER_INSTALL, EXTRA, PICTURE, REQUIRES, ControlTask, tasks

__all__ = ["AFTER_INSTALL", "EXTRA", "REQUIRES", "StateTask", "make", "tasks"]


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
    check_task("dmc-state", task, tasks())
    check_num_envs(num_envs)
    seeds = environment_seeds(seed, num_envs)
    renderer = gl.Renderer(*PICTURE)
    return BatchEnvs([StateTask(task, task_seed, renderer) for task_seed in seeds], device)


class StateTask(ControlTask):
    """A task observed as numbers."""

    def __init__(self, task: str, seed: int, renderer: gl.Renderer) -> None:
        super().__init__(task, seed, renderer)
        size = _flatten(self.task.get_observation(self.physics)).size
        self.spec = self.make_spec((size,), torch.float32)

    def reset(self) -> NDArray[np.float32]:
        """Start an episode."""
        return _flatten(self.begin())

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], float, bool]:
        """Play an action twice; the rewards are summed."""
        reward = self.play(action)
        return self._observe(), reward, False

    def load_state_dict(self, state: State) -> NDArray[np.float32]:
        """Load a state; return the observation to act on."""
        self.restore(state)
        return self._observe()

    def _observe(self) -> NDArray[np.float32]:
        return _flatten(self.task.get_observation(self.physics))


def _flatten(observations: Mapping[str, Any]) -> NDArray[np.float32]:
    return np.concatenate([np.ravel(part) for part in observations.values()]).astype(np.float32)
