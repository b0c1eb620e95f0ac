"""Replay on the learner's device, for observations that are planes of bits (tensor games).

A run's ``BitReplay`` can share the memory of a ``StackedBitReplay``, which stores and draws for
many runs at once without waiting for the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hadamard.core.checkpoint import CheckpointError
from hadamard.core.types import EnvSpec, State
from hadamard.learning.replay.packing import Batch


def pack_bits(planes: Tensor) -> Tensor:
    """Return the last dimension, zeros and ones, as bytes of eight.

    Examples:
        >>> pack_bits(torch.tensor([1, 0, 0, 0, 0, 0, 0, 1, 1])).tolist()
        [129, 1]
    """
    padded = torch.nn.functional.pad(planes, (0, -planes.shape[-1] % 8))
    place = torch.arange(8, device=planes.device)
    packed: Tensor = (padded.unflatten(-1, (-1, 8)).int() << place).sum(-1).to(torch.uint8)
    return packed


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """Return the first bits of packed bytes as zeros and ones.

    Examples:
        >>> unpack_bits(torch.tensor([129, 1], dtype=torch.uint8), 9).tolist()
        [1, 0, 0, 0, 0, 0, 0, 1, 1]
    """
    place = torch.arange(8, device=packed.device)
    return ((packed.unsqueeze(-1).int() >> place) & 1).flatten(-2)[..., :count].to(torch.uint8)


class BitReplay:
    """The newest transitions of one run."""

    def __init__(self, env: EnvSpec, capacity: int, device: torch.device) -> None:
        self.obs_shape, self.capacity = tuple(env.obs_shape), capacity
        size = -(-math.prod(self.obs_shape) // 8)
        self.written = torch.zeros(1, dtype=torch.int64, device=device)
        """How many transitions have been stored."""
        bytes_ = torch.zeros(capacity, size, dtype=torch.uint8, device=device)
        number = torch.zeros(capacity, device=device)
        self.tensors = {
            "obs": bytes_,
            "action": number.to(torch.uint8),
            "reward": number,
            "terminated": number.bool(),
            "next_obs": bytes_.clone(),
        }

    def begin(self, obs: Tensor) -> None:
        """Nothing to start: transitions are stored whole."""

    def state_dict(self) -> State:
        """Return the transitions."""
        filled = min(int(self.written), self.capacity)
        return {
            "written": self.written,
            **{name: tensor[:filled] for name, tensor in self.tensors.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Restore saved transitions."""
        filled = len(state["obs"])
        if filled != min(int(state["written"]), self.capacity):
            raise CheckpointError(
                f"the saved replay holds {filled} transitions, which does not fit a capacity of "
                f"{self.capacity} and {int(state['written'])} steps"
            )
        for name, tensor in self.tensors.items():
            tensor[:filled].copy_(state[name])
        self.written.copy_(state["written"])


class StackedBitReplay:
    """The replays of several runs; each run's ``BitReplay`` holds its rows."""

    def __init__(self, members: Sequence[BitReplay]) -> None:
        first = members[0]
        self.obs_shape, self.capacity = first.obs_shape, first.capacity
        self.written = torch.stack([member.written for member in members])
        names = list(first.tensors)
        self.tensors = {}
        for name in names:  # one by one, so that little memory is needed twice
            self.tensors[name] = torch.stack([member.tensors[name] for member in members])
            for row, member in enumerate(members):
                member.tensors[name] = self.tensors[name][row]
        for row, member in enumerate(members):
            member.written = self.written[row]
        self._runs = torch.arange(len(members), device=self.written.device).unsqueeze(1)

    def store(self, batch: Batch) -> None:
        """Store a transition of every game, each value (runs, games, ...)."""
        games = torch.arange(batch.action.shape[1], device=self.written.device)
        slots = (self.written + games) % self.capacity
        for name, value in batch._asdict().items():
            if name in ("obs", "next_obs"):
                value = pack_bits(value.flatten(2))
            kept = self.tensors[name]
            kept.index_put_((self._runs, slots), value.to(kept.dtype))
        self.written += len(games)

    def sample(self, draws: Tensor) -> Batch:
        """Return the transitions that uniform numbers (runs, batch, 2) choose."""
        filled = self.written.clamp(max=self.capacity)
        # Two numbers of 24 bits: one alone would not reach all slots equally often.
        uniform = draws[..., 0].double() + draws[..., 1].double() * 2.0**-24
        slots = (uniform * filled).long()
        values = {name: kept[self._runs, slots] for name, kept in self.tensors.items()}
        count = math.prod(self.obs_shape)
        for name in ("obs", "next_obs"):
            values[name] = unpack_bits(values[name], count).unflatten(2, self.obs_shape)
        values["action"] = values["action"].long()
        return Batch(**values)
