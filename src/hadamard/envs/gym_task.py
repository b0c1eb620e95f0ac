"""One environment that Gymnasium has registered, for the suite gym.

Every episode starts with a seed of its own, which follows from the environment's seed and the
number of the episode. So an episode can be repeated: its number and its actions are the saved
state, and loading it plays them again. Whether that gives the same numbers is tried out before
training (``plays_again``), since a task may have other random numbers or keep something from
episode to episode. An environment with methods ``state_dict`` and ``load_state_dict`` is saved
through them instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadamard.core.types import EnvSpec, State
from hadamard.envs import gym_spaces
from hadamard.envs.gl import CannotDraw

LONGEST_EPISODE = 100_000
"""Steps of an episode that is repeated to restore it; a task without a limit is not."""
_TRIED_STEPS = 50


class RegisteredTask:
    """One environment as Gymnasium makes it, with its wrappers."""

    def __init__(
        self, registered: Any, seed: int, *, exact: bool = True, pictures: bool = False
    ) -> None:
        import gymnasium

        self.name = f"gym/{registered.id}"
        options: dict[str, Any] = (
            {"render_mode": "rgb_array"} if pictures and _draws(registered) else {}
        )
        self.environment: Any = gymnasium.make(registered, disable_env_checker=True, **options)
        self._observations = gym_spaces.observations(self.name, self.environment.observation_space)
        self._actions = gym_spaces.actions(self.name, self.environment.action_space)
        self._seed, self._episode, self._exact = seed, 0, exact
        own: Any = self.environment.unwrapped
        self.has_protocol = hasattr(own, "state_dict") and hasattr(own, "load_state_dict")
        """Whether the environment saves and loads its own state."""
        self._length = 0
        self._played: list[Any] = []
        limit = getattr(self.environment.spec, "max_episode_steps", 0) or 0
        frames_per_second = self.environment.metadata.get("render_fps") or 0
        self.spec = EnvSpec(
            self._observations.shape,
            self._observations.dtype,
            num_actions=self._actions.number,
            full_range=self._observations.full_range,
            action_size=self._actions.size,
            max_steps=limit,
            step_seconds=1 / frames_per_second if frames_per_second else 0.0,
        )

    def reset(self) -> NDArray[Any]:
        """Start the next episode, with its own seed."""
        seed = int(np.random.SeedSequence([self._seed, self._episode]).generate_state(1)[0])
        self._episode += 1
        self._length, self._played = 0, []
        return self._observations.convert(self.environment.reset(seed=seed >> 1)[0])

    def step(self, action: Any) -> tuple[NDArray[Any], Any, Any, Any]:
        """Take a step; the task decides whether it ended and whether a limit cut it short."""
        converted = self._actions.convert(action)
        self._length += 1
        if self._exact and not self.has_protocol:
            self._played.append(np.array(action))
        observation, reward, terminated, truncated, _ = self.environment.step(converted)
        return self._observations.convert(observation), reward, terminated, truncated

    def state_dict(self) -> State:
        """Return the number of the episode, and the actions in it or the environment's state."""
        state: State = {"seed": self._seed, "episode": self._episode}
        if not self._exact:
            return state
        if self.has_protocol:
            saved = self.environment.unwrapped.state_dict()
            return {**state, "own": saved, "length": self._length}
        return {**state, "actions": np.array(self._played)}

    def load_state_dict(self, state: State) -> NDArray[Any]:
        """Play the saved episode again up to its last action; return the observation there."""
        self._seed, self._episode = int(state["seed"]), int(state["episode"])
        if not self._exact:  # the next reset starts the episode after the saved one
            return np.empty(0)
        self._episode = max(0, self._episode - 1)
        observation = self.reset()
        if "own" in state:
            observation = self.environment.unwrapped.load_state_dict(state["own"])
            self._length = int(state["length"])
            _set_elapsed_steps(self.environment, self._length)
            return self._observations.convert(observation)
        for action in np.asarray(state["actions"]):
            observation = self.step(action)[0]
        return observation

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the current state."""
        if self.environment.render_mode != "rgb_array":
            modes = ", ".join(map(str, self.environment.metadata.get("render_modes", ())))
            raise CannotDraw(
                f"{self.name} has no pictures: it has no render mode rgb_array "
                f"(its render modes: {modes or 'none'})"
            )
        from gymnasium.error import DependencyNotInstalled

        try:
            return np.asarray(self.environment.render(), dtype=np.uint8)
        except DependencyNotInstalled as error:
            raise CannotDraw(f"{self.name} needs more packages for pictures: {error}") from error

    def close(self) -> None:
        """Free what the environment holds."""
        self.environment.close()


def _draws(registered: Any) -> bool:
    """Tell whether a task can be drawn into an array; its class says so without being made."""
    from gymnasium.envs.registration import load_env_creator

    entry = registered.entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    metadata = getattr(creator, "metadata", None) or {}
    return "rgb_array" in metadata.get("render_modes", ())


def _set_elapsed_steps(environment: Any, steps: int) -> None:
    """Tell the wrapper with the time limit how long the episode is."""
    from gymnasium.wrappers import TimeLimit

    while environment is not environment.unwrapped:
        limit: Any = environment
        if isinstance(environment, TimeLimit):
            limit._elapsed_steps = steps
        environment = limit.env


def plays_again(registered: Any) -> bool:
    """Try whether an episode that one environment saved continues alike in another."""
    first, second = RegisteredTask(registered, 1), RegisteredTask(registered, 2)
    try:
        if not first.has_protocol and not 0 < first.spec.max_steps <= LONGEST_EPISODE:
            return False
        first.reset()
        second.reset()
        newest = _play(first, seed=0)[-1][0]
        _play(second, seed=1)
        loaded = second.load_state_dict(first.state_dict())
        continued = zip(_play(first, seed=2), _play(second, seed=2), strict=True)
        return np.array_equal(newest, loaded) and all(
            np.array_equal(one[0], other[0]) and one[1:] == other[1:] for one, other in continued
        )
    finally:
        first.close()
        second.close()


def _play(task: RegisteredTask, seed: int) -> list[tuple[Any, ...]]:
    """Take some steps with random actions; return what each led to, with the observation after."""
    random, results = np.random.RandomState(seed), []
    for _ in range(_TRIED_STEPS):
        if task.spec.continuous:
            action: Any = random.uniform(-1, 1, task.spec.action_size).astype(np.float32)
        else:
            action = np.int64(random.randint(task.spec.num_actions))
        observation, reward, terminated, truncated = task.step(action)
        if terminated or truncated:
            observation = task.reset()
        results.append((observation, float(reward), bool(terminated), bool(truncated)))
    return results
