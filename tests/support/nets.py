"""Kinds of observations, and random examples of them."""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard.core.types import EnvSpec

VECTOR = EnvSpec((5,), torch.float32, 3)
GRID = EnvSpec((3, 10, 10), torch.uint8, 3)
FRAMES = EnvSpec((4, 84, 84), torch.uint8, 3, frames=4)


def observations(env: EnvSpec, count: int = 2) -> Tensor:
    high = 256 if env.frames > 1 else 2
    return torch.randint(high, (count, *env.obs_shape)).to(env.obs_dtype)
