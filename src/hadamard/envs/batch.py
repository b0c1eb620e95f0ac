"""Single environments as one batch, for the MuJoCo suites and Gymnasium's tasks.

A suite implements a task: one simulation with one seed. Time limits, resets, scores and saved
states are handled here.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs.common import (
    BadValue,
    RunningEpisodes,
    check_actions,
    check_num_envs,
    check_saved,
    copy_to_device,
    is_finite,
)


class PhysicsError(RuntimeError):
    """The simulation produced NaN or infinity."""


class Task(Protocol):
    """One environment. It does not reset itself."""

    spec: EnvSpec

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation; the generator is not reseeded."""

    def step(self, action: NDArray[Any]) -> tuple[Any, ...]:
        """Return the observation, the reward and whether the task ended; may raise PhysicsError.

        A task with a limit of its own also returns whether that cut the episode short.
        """

    def state_dict(self) -> State:
        """Return everything that the next step depends on, as plain values and arrays."""

    def load_state_dict(self, state: State, /) -> NDArray[Any]:
        """Load a state; return the observation to act on."""

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the current state, (height, width, 3)."""

    def close(self) -> None:
        """Free what the environment holds."""


class BatchEnvs:
    """Single environments, stepped one after another, as one batch.

    With ``exact=False`` a saved state holds what the next episodes follow from, and no running
    episode: loading it returns None.
    """

    splittable = True

    def __init__(
        self, tasks: Sequence[Task], device: torch.device | str = "cpu", *, exact: bool = True
    ) -> None:
        check_num_envs(len(tasks))
        self.exact = exact
        self.num_envs = len(tasks)
        self.device = torch.device(device)
        self.spec = tasks[0].spec
        self._tasks = tasks
        obs_dtype = torch.empty(0, dtype=self.spec.obs_dtype).numpy().dtype
        self._obs = np.zeros((self.num_envs, *self.spec.obs_shape), dtype=obs_dtype)
        self._running = RunningEpisodes(self.num_envs)
        self._actions: NDArray[Any] | None = None

    def reset(self) -> Tensor:
        """Start new episodes everywhere; the generators are not reseeded."""
        for index, task in enumerate(self._tasks):
            self._obs[index] = self._observation_of(index, task.reset())
        self._running.clear()
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
                result = self._check(index, task.step(self._actions[index]))
                self._obs[index], reward[index], terminated[index], truncated[index] = result
            except PhysicsError as error:
                # The last observation stands in for the successor, which is not finite.
                truncated[index] = True
                warnings.warn(f"environment {index}: {error}; its episode ends here", stacklevel=2)
        self._actions = None
        self._running.add(reward)
        if self.spec.max_steps:
            truncated |= self._running.lengths >= self.spec.max_steps
        truncated &= ~terminated
        ended = np.flatnonzero(terminated | truncated)
        episodes: list[Episode] = []
        final_index = final_obs = None
        if ended.size:
            final_index = torch.from_numpy(ended)
            final_obs = copy_to_device(self._obs[ended], self.device, ended)
            for index in ended.tolist():
                episodes.append(self._running.finish(index))
                self._obs[index] = self._observation_of(index, self._tasks[index].reset())
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

    def _check(self, index: int, result: tuple[Any, ...]) -> tuple[NDArray[Any], float, bool, bool]:
        """Return what a task's step returned, if its types and shapes are right and it is finite.

        A simulation that is no longer finite is a physical accident, which ends one episode.
        """
        observation, reward, terminated, truncated = (*result, False)[:4]
        observation = self._observation_of(index, observation)
        if not isinstance(reward, numbers.Real):
            raise BadValue(index, f"a reward that is no number: {reward!r}")
        if not isinstance(terminated, bool | np.bool_):
            raise BadValue(index, f"a termination that is neither True nor False: {terminated!r}")
        if not isinstance(truncated, bool | np.bool_):
            raise BadValue(index, f"a truncation that is neither True nor False: {truncated!r}")
        if not math.isfinite(reward):
            raise PhysicsError(f"the reward is {reward}")
        if observation.dtype.kind == "f" and not is_finite(observation):
            raise PhysicsError("the observation is not finite")
        return observation, float(reward), bool(terminated), bool(truncated)

    def _observation_of(self, index: int, observation: Any) -> NDArray[Any]:
        """Return a task's observation in the type of the batch, if it can hold it."""
        try:
            array = np.asarray(observation)
        except ValueError:  # nested sequences of different lengths
            raise BadValue(index, f"an observation that is no array: {observation!r}") from None
        dtype = self._obs.dtype
        if array.shape != self.spec.obs_shape:
            problem = f"an observation of shape {array.shape} instead of {self.spec.obs_shape}"
            raise BadValue(index, problem)
        if array.dtype != dtype and not (dtype.kind == "f" and array.dtype.kind in "fiub"):
            raise BadValue(index, f"an observation of type {array.dtype} instead of {dtype}")
        return array.astype(dtype, copy=False)

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
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
            **self._running.state_dict(),
        }

    def load_state_dict(self, state: State) -> Tensor | None:
        """Load a state; return the observations to act on, None if it is not exact."""
        check_saved(len(state["tasks"]), self.num_envs)
        for index, (task, saved) in enumerate(zip(self._tasks, state["tasks"], strict=True)):
            observation = task.load_state_dict(saved)
            if self.exact:
                self._obs[index] = self._observation_of(index, observation)
        self._running.load_state_dict(state)
        self._actions = None
        return self._observation() if self.exact else None

    def _observation(self) -> Tensor:
        return copy_to_device(self._obs, self.device)
