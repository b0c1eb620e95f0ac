"""A replay as plain lists, and environments whose ends follow a script, to compare replays with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hadamard.core.types import EnvSpec, Step

Event = Literal["continue", "terminate", "truncate", "lose a life"]
EVENTS: tuple[Event, ...] = ("continue", "terminate", "truncate", "lose a life")


@dataclass(frozen=True)
class Record:
    """A step as the agent saw it; ``position`` counts the environment's frames up to its own."""

    position: int
    obs: list[int]
    action: list[float]
    reward: float
    terminated: bool
    next_obs: list[int]


class NaiveReplay:
    """All steps of scripted environments, in lists; every frame is a number that never repeats."""

    def __init__(self, num_envs: int, stack: int, action_size: int = 0) -> None:
        self.num_envs, self.stack, self.action_size = num_envs, stack, action_size
        self.spec = EnvSpec(
            (stack, 1, 1),
            torch.int32,
            num_actions=0 if action_size else 1_000,
            frames=stack,
            action_size=action_size,
        )
        self.frames = 0
        self.pushed = [0] * num_envs
        self.episodes: list[list[list[Record]]] = [[] for _ in range(num_envs)]
        self.stacks = [self._new_episode(env) for env in range(num_envs)]

    def _new_frame(self, env: int) -> int:
        self.frames += 1
        self.pushed[env] += 1
        return self.frames

    def _new_episode(self, env: int) -> list[int]:
        self.episodes[env].append([])
        return [self._new_frame(env) for _ in range(self.stack)]

    def obs(self) -> Tensor:
        return torch.stack([image(stack) for stack in self.stacks])

    def step(self, events: Sequence[Event]) -> tuple[Tensor, Step]:
        """Step all environments; actions and rewards are numbers that do not repeat either."""
        actions, rewards, final_index, final_obs = [], [], [], []
        for env, event in enumerate(events):
            stack, position = self.stacks[env], self.pushed[env]
            next_stack = [*stack[1:], self._new_frame(env)]
            number = self.frames % 1_000
            actions.append([float(number + i) for i in range(self.action_size or 1)])
            rewards.append(number / 8 - 20)
            terminated = event in ("terminate", "lose a life")
            self.episodes[env][-1].append(
                Record(position, stack, actions[-1], rewards[-1], terminated, next_stack)
            )
            if event in ("terminate", "truncate"):
                final_index.append(env)
                final_obs.append(image(next_stack))
                next_stack = self._new_episode(env)
            self.stacks[env] = next_stack
        action = torch.tensor(actions) if self.action_size else torch.tensor(actions)[:, 0].long()
        return action, Step(
            self.obs(),
            torch.tensor(rewards),
            torch.tensor([event in ("terminate", "lose a life") for event in events]),
            torch.tensor([event == "truncate" for event in events]),
            torch.tensor(final_index) if final_index else None,
            torch.stack(final_obs) if final_index else None,
            "truncate" in events,
        )

    def draws(self, slots: int, horizon: int) -> dict[tuple[int, int], list[Record]]:
        """Return the steps of every possible draw, up to an end, by environment and slot.

        ``horizon`` steps must follow in the episode, or the task must end before, and no frame of
        the first observation may be overwritten.
        """
        draws = {}
        for env, episodes in enumerate(self.episodes):
            for episode in episodes:
                for i, first in enumerate(episode):
                    steps = []
                    for record in episode[i : i + horizon]:
                        steps.append(record)
                        if record.terminated:
                            break
                    complete = len(steps) == horizon or steps[-1].terminated
                    oldest_frame = first.position - self.stack
                    if complete and oldest_frame >= self.pushed[env] - slots:
                        draws[env, (first.position - 1) % slots] = steps
        return draws


def image(stack: Sequence[int]) -> Tensor:
    """Return the observation whose frames are these numbers."""
    return torch.tensor(stack, dtype=torch.int32)[:, None, None]
