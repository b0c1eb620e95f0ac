"""Groups of environments that can be stepped separately, or together as one batch.

With several groups, the actions of one can be chosen while the others play.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, State, Step


class GroupedEnvs:
    """Several batches of the same kind of environment, joined in order into one batch."""

    def __init__(self, groups: Sequence[Envs]) -> None:
        self.groups = groups
        self.sizes = [group.num_envs for group in groups]
        self.spec, self.exact = groups[0].spec, all(group.exact for group in groups)
        self.num_envs = sum(self.sizes)

    def reset(self) -> Tensor:
        """Start new episodes everywhere."""
        return torch.cat([group.reset() for group in self.groups])

    def send(self, action: Tensor) -> None:
        """Start one step in all groups."""
        if action.shape[:1] != (self.num_envs,):
            raise ValueError(
                f"there must be {self.num_envs} actions, one for each environment, got shape "
                f"{tuple(action.shape)}"
            )
        for group, group_action in zip(self.groups, action.split(self.sizes), strict=True):
            group.send(group_action)

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        return join_steps([group.receive() for group in self.groups])

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment."""
        return self.groups[0].render()

    def close(self) -> None:
        """Close all groups."""
        for group in self.groups:
            group.close()

    def state_dict(self) -> State:
        """Return the state of every group."""
        return {"groups": [group.state_dict() for group in self.groups]}

    def load_state_dict(self, state: State) -> Tensor | None:
        """Load a state; return its observations, or None if the suite cannot restore exactly."""
        saved = state["groups"]
        if len(saved) != len(self.groups):
            raise ValueError(
                f"the saved state has {len(saved)} groups, but here there are {len(self.groups)}: "
                f"make the environments with groups={len(saved)}"
            )
        obs = [group.load_state_dict(s) for group, s in zip(self.groups, saved, strict=True)]
        return torch.cat(obs) if all(isinstance(o, Tensor) for o in obs) else None


def join_steps(steps: Sequence[Step]) -> Step:
    """Join the steps of several groups into one step of all their environments."""
    if len(steps) == 1:
        return steps[0]
    sizes = [len(step.reward) for step in steps]
    offsets = itertools.accumulate(sizes[:-1], initial=0)
    with_offset = list(zip(steps, offsets, strict=True))
    final_index = [s.final_index + first for s, first in with_offset if s.final_index is not None]
    final_obs = [s.final_obs for s in steps if s.final_obs is not None]
    return Step(
        obs=torch.cat([s.obs for s in steps]),
        reward=torch.cat([s.reward for s in steps]),
        terminated=torch.cat([s.terminated for s in steps]),
        truncated=torch.cat([s.truncated for s in steps]),
        final_index=torch.cat(final_index) if final_index else None,
        final_obs=torch.cat(final_obs) if final_obs else None,
        any_truncated=any(s.any_truncated for s in steps),
        episodes=tuple(
            episode._replace(env=episode.env + first)
            for s, first in with_offset
            for episode in s.episodes
        ),
    )


def split_step(step: Step, count: int) -> list[Step]:
    """Divide a step into those of equal groups of environments: the reverse of `join_steps`."""
    size = len(step.reward) // count
    parts = [slice(first, first + size) for first in range(0, len(step.reward), size)]
    final = [] if step.final_index is None else step.final_index.tolist()
    steps = []
    for part in parts:
        rows = [row for row, env in enumerate(final) if part.start <= env < part.stop]
        ended = rows and step.final_obs is not None
        steps.append(
            Step(
                obs=step.obs[part],
                reward=step.reward[part],
                terminated=step.terminated[part],
                truncated=step.truncated[part],
                final_index=torch.tensor([final[row] - part.start for row in rows])
                if ended
                else None,
                final_obs=step.final_obs[rows] if ended and step.final_obs is not None else None,
                any_truncated=step.any_truncated and bool(step.truncated[part].any()),
                episodes=tuple(
                    episode._replace(env=episode.env - part.start)
                    for episode in step.episodes
                    if part.start <= episode.env < part.stop
                ),
            )
        )
    return steps
