"""Single transitions as one tensor: one copy to a GPU instead of five.

For a replay that keeps everything but the frames on the CPU (``on_host``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hadamard.learning.replay.ring import Indices, Ring


class Batch(NamedTuple):
    """Transitions on the learner's device."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    next_obs: Tensor


def pack(ring: Ring, indices: Indices) -> Tensor:
    """Return the indices, actions, rewards and terminations as rows of one double tensor.

    Whole numbers up to 2**53 and rewards of single precision are exact in it.
    """
    index = indices.envs.numpy(), indices.slots.numpy()
    rows = np.empty((5, len(index[0])))
    rows[0], rows[1] = index
    for row, name in enumerate(("action", "reward", "terminated"), start=2):
        rows[row] = ring.arrays[name][index]
    return torch.from_numpy(rows)


def unpack(ring: Ring, packed: Tensor) -> Batch:
    """Return the packed transitions with their frames; a graph on the frames' GPU may call this."""
    envs, slots, action = packed[:3].long()
    obs, next_obs = ring.observations(Indices(envs, slots), 0, 2).unbind(1)
    reward, terminated = packed[3].float(), packed[4] > 0
    device = ring.device
    return Batch(obs, action.to(device), reward.to(device), terminated.to(device), next_obs)
