"""The replays of many runs on the learner's device, stored in and drawn from as one.

Nothing waits for the device, and a captured graph can store and draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hadamard.core.types import Metrics, Step
from hadamard.learning.replay.packing import Batch
from hadamard.learning.replay.ring import Ring


class StackedDeviceReplay:
    """The newest transitions of several runs; each run's own replay holds its rows.

    For replays that keep everything on one device and draw single transitions, all equally likely,
    whose observations are one frame.
    """

    def __init__(self, members: Sequence[Ring]) -> None:
        first = members[0]
        assert first.stack == first.horizon == 1
        assert first.priority is None
        self.runs, self.slots, self.device = len(members), first.slots, first.frames.device
        self.num_envs = len(first.pushed)
        filled = min(self.slots, max(max(member.pushed) for member in members))

        def share(name: str) -> Tensor:
            """Move a value of all slots to one tensor, (environments of all runs, slots, ...)."""
            tensors = [getattr(member, name) for member in members]
            # The frames are reserved when they are first written: most may never be.
            new = tensors[0].new_empty if name == "frames" else tensors[0].new_zeros
            stacked: Tensor = new((len(tensors), *tensors[0].shape))
            for member, row, tensor in zip(members, stacked, tensors, strict=True):
                row[:, :filled].copy_(tensor[:, :filled])
                member.move(name, row)
            return stacked.flatten(0, 1)

        # One by one, so that little memory is needed twice.
        self.frames, self.action = share("frames"), share("action")
        self.reward, self.terminated = share("reward"), share("terminated")
        self.usable = share("usable")
        pushed, ages = (
            np.array([getattr(member, name) for member in members], dtype=np.int64)
            for name in ("pushed", "ages")
        )
        for member, *row in zip(members, pushed, ages, strict=True):
            member.pushed, member.ages = row
        self._pushed, self._ages = pushed.reshape(-1), ages.reshape(-1)
        self._rows = torch.arange(len(self._pushed), device=self.device)
        size = self.num_envs * self.slots
        self._last = torch.arange(1, self.runs + 1, device=self.device) * size - 1
        """The last slot of each run, in a row of all slots."""

    def pack(self, step: Step) -> Tensor:
        """Return slots, rewards and terminations of a step of all environments as one CPU tensor.

        The slots are those of the observations acted on, of their successors, and of what to act
        on next, which is the successor but where an episode began. Double precision holds whole
        numbers up to 2^53.
        """
        packed = np.empty((5, len(self._pushed)))
        packed[0], packed[1] = (self._pushed - 1) % self.slots, self._pushed % self.slots
        self._pushed += 1
        self._ages += 1
        if step.final_index is not None:
            began = step.final_index.numpy()
            self._pushed[began] += 1
            self._ages[began] = 0
        packed[2] = (self._pushed - 1) % self.slots
        packed[3], packed[4] = step.reward.numpy(), step.terminated.numpy()
        return torch.from_numpy(packed)

    def store(self, action: Tensor, next_obs: Tensor, obs: Tensor, packed: Tensor) -> Metrics:
        """Store a step of all environments: actions, successors and what to act on next.

        Repeated, it writes the same again, so nothing has to be undone after warm-up calls.
        """
        rows, (acted_on, successor, newest) = self._rows, packed[:3].long()
        self.action[rows, acted_on] = action.to(self.action.dtype)
        self.reward[rows, acted_on] = packed[3].to(self.reward.dtype)
        self.terminated[rows, acted_on] = packed[4] > 0
        no = torch.zeros((), dtype=torch.bool, device=self.device)  # a Python value would wait
        for slot, value in ((successor, next_obs), (newest, obs)):
            self.frames[rows, slot] = value
            self.usable[rows, slot] = no
        self.usable[rows, acted_on] = ~no
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
        frames = self.frames.flatten(0, 1)
        return Batch(
            frames[place],
            self.action.flatten(0, 1)[place],
            self.reward.flatten()[place],
            self.terminated.flatten()[place],
            frames[place - slot + (slot + 1) % self.slots],
        )
