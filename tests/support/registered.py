"""Gymnasium tasks of a user's, registered when this module is imported."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Grid(gymnasium.Env[Any, Any]):
    """Walk to a goal on a line; the observation is a dict."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space = spaces.Dict(
        {"goal": spaces.MultiBinary(4), "place": spaces.Discrete(4, start=1)}
    )
    action_space = spaces.Discrete(2, start=5)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.actions: list[Any] = []

    def _observe(self) -> Any:
        goal = np.zeros(4, np.int8)
        goal[self.goal] = 1
        return {"place": self.place + 1, "goal": goal}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.goal = 0, int(self.np_random.integers(1, 4))
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.place = min(3, max(0, self.place + (1 if action == 6 else -1)))
        ended = self.place == self.goal
        return self._observe(), float(ended), ended, False, {}

    def render(self) -> Any:
        picture = np.zeros((8, 32, 3), np.uint8)
        picture[:, 8 * self.place : 8 * self.place + 8] = 255
        return picture


class Chance(Grid):
    """The same with random numbers that follow from no seed."""

    drawn = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        Chance.drawn += 1
        super().reset(seed=Chance.drawn)
        return self._observe(), {}


class Saved(Grid):
    """The same with goals that depend on the episodes before; it saves and loads its own state."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episodes += 1
        self.goal = 1 + self.episodes % 3
        return self._observe(), {}

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "goal": self.goal, "episodes": self.episodes}

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        self.place, self.goal, self.episodes = state["place"], state["goal"], state["episodes"]
        return self._observe()


class Spaces(gymnasium.Env[Any, Any]):
    """A task with any spaces, which observes what it is given."""

    def __init__(self, observation_space: Any, action_space: Any, observed: Any = None) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.observed = observed
        self.played: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        return self._observe(), {}

    def _observe(self) -> Any:
        return self.observation_space.sample() if self.observed is None else self.observed

    def step(self, action: Any) -> Any:
        self.played.append(action)
        return self._observe(), 0.0, False, False, {}


gymnasium.register("HadamardGrid-v0", Grid, max_episode_steps=6)
gymnasium.register("HadamardGrid-v2", Grid, max_episode_steps=20)
gymnasium.register("HadamardChance-v0", Chance, max_episode_steps=6)
gymnasium.register("HadamardSaved-v0", Saved)
