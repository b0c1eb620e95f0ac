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
    greedy: int = 0,
) -> tuple[Tensor, Metrics | None]:
    """Choose the best ``action`` that a look shows, or a random one with probability epsilon.

    Chance is drawn on the CPU, where the actions are needed: when a single environment explores,
    nothing is looked at, and None is returned for what was seen. A greedy choice draws nothing:
    the last ``greedy`` rows get one whatever epsilon is, and the others are drawn the same numbers
    as without them.
    """
    count = len(obs) - greedy
    if epsilon <= 0:
        seen = look(obs)
        return seen["action"].cpu(), seen
    chance = torch.rand(count, generator=generator)
    random = torch.randint(num_actions, (count,), generator=generator)
    if count == 1 and not greedy and chance.item() < epsilon:
        return random, None
    seen = look(obs)
    best = seen["action"].cpu()
    if count == 1 and not greedy:
        return best, seen
    explored = torch.where(chance < epsilon, random, best[:count])
    return torch.cat([explored, best[count:]]) if greedy else explored, seen
