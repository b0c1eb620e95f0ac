"""Small agents of DQN, PPO and PQN, and batches for their updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hadamard.core import discover
from hadamard.core.config import overridden
from hadamard.core.types import EnvSpec
from hadamard.training import start

CPU = torch.device("cpu")
GRID = EnvSpec((3, 6, 6), torch.uint8, 5)


def agent_of(
    algorithm: str, dtype: torch.dtype, changes: Mapping[str, Any], device: torch.device = CPU
) -> Any:
    """Build an agent whose networks compute in this dtype."""
    small = {"net.width": 13, "train.steps": 99, "algo.learning_rate": 1e-3, **changes}
    spec = overridden(start.default_spec(algorithm, "probe/image"), small)
    torch.set_default_dtype(dtype)
    agent = discover.find("hadamard.algos", algorithm, "algorithm").build(GRID, spec, device)
    torch.set_default_dtype(torch.float32)
    for part in (agent.network, getattr(agent, "target", None)):
        if part is not None and dtype != torch.float32:
            part.encoder.hidden[0].register_forward_pre_hook(lambda _, x: (x[0].to(dtype),))
    return agent


def batch_of(
    algorithm: str, env: EnvSpec = GRID, size: int = 8, device: torch.device = CPU
) -> tuple[Tensor, ...]:
    """Return a random batch for an algorithm's update."""
    obs, next_obs = torch.randint(2, (2, size, *env.obs_shape)).to(env.obs_dtype)
    action = torch.randint(env.num_actions, (size,))
    numbers = torch.randn(3, size)
    batch: tuple[Tensor, ...]
    if algorithm == "dqn":
        batch = obs, action, numbers[0], numbers[1] < -0.5, next_obs
    elif algorithm == "pqn":
        batch = obs, action, 5 * numbers[0]
    else:
        batch = obs, action, -numbers[0].abs() - 1, numbers[1], numbers[2]
    return tuple(part.to(device) for part in batch)
