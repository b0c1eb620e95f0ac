"""The replays of many runs as one, stored in and drawn from without waiting for the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hadamard.core.types import Metrics, Step
from hadamard.learning.replay.packing import Batch
from hadamard.learning.replay.ring import Ring

_PARTS = ("frames", "action", "reward", "terminated", "usable")


class StackedDeviceReplay:
    """The replays of several runs; each run's own holds its rows.

    They keep everything on one device, observations of one frame, and draw single transitions
    with equal probability.
    """

    def __init__(self, members: Sequence[Ring]) -> None:
        self.members = list(members)
        first = self.members[0]
        assert first.stack == first.horizon == 1
        assert first.priority is None
        self.slots, self.device = first.slots, first.frames.device
        self.num_envs = len(first.pushed)
        filled = min(self.slots, max(max(member.pushed) for member in members))
        # One by one, so that little memory is needed twice.
        for name in _PARTS:
            tensors = [getattr(member, name) for member in members]
            stacked = _stacked(tensors, filled, zeros=name != "frames")
            setattr(self, name, stacked)
            for member, row in zip(members, stacked, strict=True):
                member.move(name, row)
        count = len(members)
        self._runs = torch.arange(count, device=self.device).unsqueeze(1)
        self._envs = torch.arange(self.num_envs, device=self.device)
        size = self.num_envs * self.slots
        self._last = torch.arange(1, count + 1, device=self.device) * size - 1

    frames: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    usable: Tensor

    def pack(self, steps: Sequence[Step]) -> Tensor:
        """Return slots, rewards and terminations of a step of every run, as one CPU tensor.

        Each is (runs, environments). The slots are those of the observations acted on, of their
        successors, and of the observations to act on next, where an episode began.
        """
        before = torch.tensor([member.pushed for member in self.members])
        for member, step in zip(self.members, steps, strict=True):
            member.count(step)
        after = torch.tensor([member.pushed for member in self.members])
        slots = torch.stack([before - 1, before, after - 1]) % self.slots
        reward = torch.stack([step.reward for step in steps])
        terminated = torch.stack([step.terminated for step in steps])
        # Slots are whole numbers below 2^53, which double precision holds exactly.
        return torch.cat([slots.double(), torch.stack([reward.double(), terminated.double()])])

    def store(self, action: Tensor, next_obs: Tensor, obs: Tensor, packed: Tensor) -> Metrics:
        """Store a step of every run: actions, successors and the observations to act on next."""
        acted_on, successor, newest = packed[:3].long()
        self.action[self._runs, self._envs, acted_on] = action.to(self.action.dtype)
        self.reward[self._runs, self._envs, acted_on] = packed[3].to(self.reward.dtype)
        self.terminated[self._runs, self._envs, acted_on] = packed[4] > 0
        for slot, value in ((successor, next_obs), (newest, obs)):
            self.frames[self._runs, self._envs, slot] = value
            self.usable.index_put_((self._runs, self._envs, slot), self._flag(False))
        self.usable.index_put_((self._runs, self._envs, acted_on), self._flag(True))
        return {}

    def sample(self, draws: Tensor) -> Batch:
        """Return the transitions that uniform numbers (runs, batch, 2) choose."""
        number = self.usable.flatten().cumsum(0, dtype=torch.int32)
        ends = number[self._last].unsqueeze(1)
        starts = torch.nn.functional.pad(ends[:-1], (0, 0, 1, 0))
        # Two numbers of 24 bits: one alone would not reach all slots equally often.
        uniform = draws[..., 0].double() + draws[..., 1].double() * 2.0**-24
        chosen = starts + (uniform * (ends - starts)).int()
        place = torch.searchsorted(number, chosen + 1)
        slot = place % self.slots
        frames = self.frames.flatten(0, 2)
        return Batch(
            frames[place],
            self.action.flatten(0, 2)[place],
            self.reward.flatten()[place],
            self.terminated.flatten()[place],
            frames[place - slot + (slot + 1) % self.slots],
        )

    def _flag(self, value: bool) -> Tensor:
        return torch.full((), value, device=self.device)


def _stacked(tensors: Sequence[Tensor], filled: int, *, zeros: bool) -> Tensor:
    """Return stacked tensors (runs, environments, slots, ...), of which so many slots are used."""
    # Without zeros, the system finds memory for the other slots when they are first written.
    new = tensors[0].new_zeros if zeros else tensors[0].new_empty
    stacked: Tensor = new((len(tensors), *tensors[0].shape))
    for row, tensor in zip(stacked, tensors, strict=True):
        row[:, :filled].copy_(tensor[:, :filled])
    return stacked
