"""Exploration."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def epsilon_greedy(
    network: nn.Module,
    obs: Tensor,
    num_actions: int,
    epsilon: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor | None]:
    """Choose the best action, or a random one with probability epsilon.

    Chance is drawn on the CPU, where the actions are needed: when a single environment explores,
    the network is not asked, and its values are returned as None. A greedy choice draws nothing.
    """
    count = len(obs)
    if epsilon <= 0:
        with torch.no_grad():
            values: Tensor = network(obs)
        return values.argmax(1).cpu(), values
    explores = torch.rand(count, generator=generator) < epsilon
    random = torch.randint(num_actions, (count,), generator=generator)
    if count == 1 and bool(explores):
        return random, None
    with torch.no_grad():
        values = network(obs)
    return torch.where(explores, random, values.argmax(1).cpu()), values
