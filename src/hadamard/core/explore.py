"""Exploration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hadamard.core.types import Metrics


def epsilon_greedy(
    look: Callable[[Tensor], Metrics],
    obs: Tensor,
    num_actions: int,
    epsilon: float,
    generator: torch.Generator,
) -> tuple[Tensor, Metrics | None]:
    """Choose the best ``action`` that a look shows, or a random one with probability epsilon.

    Chance is drawn on the CPU, where the actions are needed: when a single environment explores,
    nothing is looked at, and None is returned for what was seen. A greedy choice draws nothing.
    """
    count = len(obs)
    if epsilon <= 0:
        seen = look(obs)
        return seen["action"].cpu(), seen
    chance = torch.rand(count, generator=generator)
    random = torch.randint(num_actions, (count,), generator=generator)
    if count == 1 and chance.item() < epsilon:
        return random, None
    seen = look(obs)
    best = seen["action"].cpu()
    return best if count == 1 else torch.where(chance < epsilon, random, best), seen
