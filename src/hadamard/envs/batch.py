"""A batch of single environments played one after another: what the MuJoCo suites share.

A suite brings the task (one robot, one seed); ends, time limits, resets, scores and saved states
are solved here, once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs.common import Tally, check_actions, check_num_envs, check_saved, copied


class PhysicsError(RuntimeError):
    """The simulation left the finite numbers."""


class Task(Protocol):
    """One environment. It never resets itself and knows of no time limit."""

    spec: EnvSpec

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation; the random generator goes on."""

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool]:
        """Return the observation, the reward and whether the task ended; may raise PhysicsError."""

    def state_dict(self) -> State:
        """Return all that the next step depends on, as plain values and arrays."""

    def load_state_dict(self, state: State, /) -> NDArray[Any]:
        """Return to that state, and return the observation to act on there."""

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the present moment, (height, width, 3)."""

    def close(self) -> None:
        """Free what the environment holds."""


class BatchEnvs:
    """Single environments as a batch. The state is exact."""

    exact = True
    splits = True

    def __init__(self, tasks: Sequence[Task], device: torch.device | str = "cpu") -> None:
        check_num_envs(len(tasks))
        self.num_envs = len(tasks)
        self.device = torch.device(device)
        self.spec = tasks[0].spec
        self._tasks = tasks
        kind = torch.empty(0, dtype=self.spec.obs_dtype).numpy().dtype
        self._obs = np.zeros((self.num_envs, *self.spec.obs_shape), dtype=kind)
        self._tally = Tally(self.num_envs)
        self._actions: NDArray[Any] | None = None

    def reset(self) -> Tensor:
        """Start new episodes everywhere; the random generators go on."""
        for index, task in enumerate(self._tasks):
            self._obs[index] = task.reset()
        self._tally.clear()
        self._actions = None
        return self._observation()

    def send(self, action: Tensor) -> None:
        """Keep the actions; the environments are stepped in ``receive``."""
        self._actions = check_actions(action, self.num_envs, self.spec)

    def receive(self) -> Step:
        """Step every environment."""
        if self._actions is None:
            raise RuntimeError("receive() without send(): no step was started")
        reward = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        for index, task in enumerate(self._tasks):
            try:
                self._obs[index], reward[index], terminated[index] = task.step(self._actions[index])
            except PhysicsError as error:
                # What was last seen stands for the successor, which is not a number.
                truncated[index] = True
                warnings.warn(f"environment {index}: {error}; its episode ends here", stacklevel=2)
        self._actions = None
        self._tally.add(reward)
        if self.spec.max_steps:
            truncated |= self._tally.lengths >= self.spec.max_steps
        truncated &= ~terminated
        ended = np.flatnonzero(terminated | truncated)
        episodes: list[Episode] = []
        final_index = final_obs = None
        if ended.size:
            final_index = torch.from_numpy(ended)
            final_obs = copied(self._obs[ended], self.device)
            for index in ended.tolist():
                episodes.append(self._tally.finish(index))
                self._obs[index] = self._tasks[index].reset()
        return Step(
            obs=self._observation(),
            reward=torch.from_numpy(reward.astype(np.float32)),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            final_index=final_index,
            final_obs=final_obs,
            any_truncated=bool(truncated.any()),
            episodes=tuple(episodes),
        )

    def step(self, action: Tensor) -> Step:
        """Send and receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment."""
        return self._tasks[0].render()

    def close(self) -> None:
        """Free what the environments hold."""
        for task in self._tasks:
            task.close()

    def state_dict(self) -> State:
        """Return the state of every environment, and the running scores."""
        return {
            "tasks": [task.state_dict() for task in self._tasks],
            **self._tally.state_dict(),
        }

    def load_state_dict(self, state: State) -> Tensor:
        """Return to that state, and return the observations to act on there."""
        check_saved(len(state["tasks"]), self.num_envs)
        for index, (task, saved) in enumerate(zip(self._tasks, state["tasks"], strict=True)):
            self._obs[index] = task.load_state_dict(saved)
        self._tally.load_state_dict(state)
        self._actions = None
        return self._observation()

    def _observation(self) -> Tensor:
        return copied(self._obs, self.device)
