"""Fake environments that know what a replay must hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hadamard.core.types import EnvSpec, Step
from hadamard.learning.replay import Batch, Indices, Replay


@dataclass
class Transitions:
    """Fake environments; every frame is a number that never repeats.

    Keeps lists of all frames and transitions of each environment, to compare a replay with.
    """

    num_envs: int
    stack: int
    seed: int = 0
    lives: float = 0.12
    resets: float = 0.12
    limits: float = 0.08
    frames: list[list[int]] = field(init=False)
    transitions: list[list[tuple[int, tuple[Any, ...]]]] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.count = 0
        self.frames = [[] for _ in range(self.num_envs)]
        self.transitions = [[] for _ in range(self.num_envs)]
        self.spec = EnvSpec((2 * self.stack, 1, 2), torch.int32, 6, self.stack)
        self.stacks = [self.new_stack(env) for env in range(self.num_envs)]

    def new_frame(self, env: int) -> int:
        self.count += 1
        self.frames[env].append(self.count)
        return self.count

    def new_stack(self, env: int) -> list[int]:
        return [self.new_frame(env) for _ in range(self.stack)]

    @staticmethod
    def picture(stack: list[int]) -> Tensor:
        """Return two channels per frame, of one row and two columns; no number repeats."""
        cells = [[[[4 * n, 4 * n + 1]], [[4 * n + 2, 4 * n + 3]]] for n in stack]
        return torch.tensor(cells, dtype=torch.int32).flatten(0, 1)

    def obs(self) -> Tensor:
        return torch.stack([self.picture(stack) for stack in self.stacks])

    def step(self) -> tuple[Tensor, Step]:
        """Act at random; return the actions and the step."""
        rng, n = self.rng, self.num_envs
        action = rng.integers(6, size=n)
        reward = rng.normal(size=n).astype(np.float32)
        terminated, truncated, final, final_obs = [], [], [], []
        for env in range(n):
            uniform = rng.random()
            reset = uniform < self.resets
            lost_life = self.resets <= uniform < self.resets + self.lives
            limit = self.resets + self.lives <= uniform < self.resets + self.lives + self.limits
            stack = self.stacks[env]
            index = len(self.frames[env]) - 1
            next_stack = [*stack[1:], self.new_frame(env)]
            transition = stack, int(action[env]), float(reward[env]), reset or lost_life, next_stack
            self.transitions[env].append((index, transition))
            terminated.append(reset or lost_life)
            truncated.append(limit)
            if reset or limit:
                final.append(env)
                final_obs.append(self.picture(next_stack))
                next_stack = self.new_stack(env)
            self.stacks[env] = next_stack
        return torch.from_numpy(action), Step(
            self.obs(),
            torch.from_numpy(reward),
            torch.tensor(terminated),
            torch.tensor(truncated),
            torch.tensor(final) if final else None,
            torch.stack(final_obs) if final else None,
            any(truncated),
        )

    def stored(self, slots: int) -> list[tuple[int, int, tuple[Any, ...]]]:
        """Return environment, slot and content of all transitions with no overwritten frame."""
        return [
            (env, index % slots, transition)
            for env in range(self.num_envs)
            for index, transition in self.transitions[env]
            if index - self.stack + 1 >= len(self.frames[env]) - slots
        ]


def sample_all(replay: Replay) -> tuple[list[tuple[int, int]], Batch]:
    """Sample every usable slot once, with the replay's own code."""
    envs, slots = replay.usable.nonzero(as_tuple=True)
    if not len(envs):
        return [], Batch(*(torch.empty(0) for _ in Batch._fields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "draw", lambda count, generator: Indices(envs, slots))
        batch = replay.sample(len(envs), torch.Generator())
    return list(zip(envs.tolist(), slots.tolist(), strict=True)), batch


class Episodes:
    """Fake environments with continuous actions; every frame is a number that never repeats.

    Keeps each environment's episodes as lists of steps, to compare a replay with. ``index`` is
    that of a step's newest frame among all frames of its environment.
    """

    def __init__(
        self, num_envs: int, stack: int, ends: float, limits: float, seed: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.stack, self.ends, self.limits = num_envs, stack, ends, limits
        self.spec = EnvSpec((stack, 1, 2), torch.float32, frames=stack, action_size=2)
        self.pushed, self.count = [0] * num_envs, 0
        self.episodes: list[list[list[dict[str, Any]]]] = [[] for _ in range(num_envs)]
        self.stacks = [self.new_stack(env) for env in range(num_envs)]

    def new_frame(self, env: int) -> int:
        self.count, self.pushed[env] = self.count + 1, self.pushed[env] + 1
        return self.count

    def new_stack(self, env: int) -> list[int]:
        self.episodes[env].append([])
        return [self.new_frame(env) for _ in range(self.stack)]

    @staticmethod
    def picture(stack: list[int]) -> Tensor:
        return torch.tensor([[[2.0 * n, 2.0 * n + 1]] for n in stack])

    def obs(self) -> Tensor:
        return torch.stack([self.picture(stack) for stack in self.stacks])

    def step(self) -> tuple[Tensor, Step]:
        action = torch.from_numpy(self.rng.normal(size=(self.num_envs, 2)).astype(np.float32))
        reward = torch.from_numpy(self.rng.normal(size=self.num_envs).astype(np.float32))
        terminated, truncated, final = [], [], []
        for env in range(self.num_envs):
            uniform = self.rng.random()
            terminated.append(uniform < self.ends)
            truncated.append(self.ends <= uniform < self.ends + self.limits)
            stack, index = self.stacks[env], self.pushed[env] - 1
            next_stack = [*stack[1:], self.new_frame(env)]
            self.episodes[env][-1].append(
                {
                    "index": index,
                    "obs": self.picture(stack),
                    "action": action[env],
                    "reward": float(reward[env]),
                    "terminated": terminated[-1],
                    "next_obs": self.picture(next_stack),
                }
            )
            self.stacks[env] = next_stack
            if terminated[-1] or truncated[-1]:
                final.append((env, self.picture(next_stack)))
                self.stacks[env] = self.new_stack(env)
        return action, Step(
            self.obs(),
            reward,
            torch.tensor(terminated),
            torch.tensor(truncated),
            torch.tensor([env for env, _ in final]) if final else None,
            torch.stack([obs for _, obs in final]) if final else None,
            any(truncated),
        )

    def draws(self, slots: int, horizon: int) -> dict[tuple[int, int], list[dict[str, Any]]]:
        """Return all subsequences that may be drawn, up to an end, by environment and slot."""
        draws = {}
        for env, episodes in enumerate(self.episodes):
            for episode in episodes:
                for i, step in enumerate(episode):
                    steps = episode[i : i + horizon]
                    complete = len(steps) == horizon or steps[-1]["terminated"]
                    oldest = step["index"] - self.stack + 1
                    if complete and oldest >= self.pushed[env] - slots:
                        draws[env, step["index"] % slots] = steps
        return draws
