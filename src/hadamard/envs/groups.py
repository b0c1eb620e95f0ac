"""Environments in groups that can be stepped one by one, or together as one batch.

A batch waits while its next actions are chosen. Of several groups, one can be acted on while the
others play.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, Episode, State, Step


class GroupedEnvs:
    """Batches of environments of one kind, as one batch in their order."""

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
        for group, part in zip(self.groups, action.split(self.sizes), strict=True):
            group.send(part)

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        return joined([group.receive() for group in self.groups])

    def step(self, action: Tensor) -> Step:
        """Send and receive."""
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
        """Return to that state, and return the observations where the suite restores exactly."""
        saved = state["groups"]
        if len(saved) != len(self.groups):
            raise ValueError(
                f"the saved state is of {len(saved)} groups and there are {len(self.groups)} "
                f"here: make the environments with groups={len(saved)}"
            )
        shown = [group.load_state_dict(s) for group, s in zip(self.groups, saved, strict=True)]
        return torch.cat(shown) if all(isinstance(obs, Tensor) for obs in shown) else None


def joined(steps: Sequence[Step]) -> Step:
    """Return what happened in several groups as one step of all their environments."""
    if len(steps) == 1:
        return steps[0]
    firsts = list(itertools.accumulate((len(step.reward) for step in steps), initial=0))
    placed = list(zip(steps, firsts, strict=False))
    final_index = [s.final_index + first for s, first in placed if s.final_index is not None]
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
            Episode(e.env + first, e.score, e.length) for s, first in placed for e in s.episodes
        ),
    )
