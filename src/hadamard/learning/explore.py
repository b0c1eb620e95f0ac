"""Exploration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hadamard.core.types import Metrics


def epsilon_greedy(
    choose_greedily: Callable[[Tensor], Metrics],
    obs: Tensor,
    num_actions: int,
    epsilon: float,
    generator: torch.Generator,
    greedy_rows: int = 0,
) -> tuple[Tensor, Metrics | None]:
    """Choose the greedy ``action``, or a random one with probability epsilon.

    Returns the actions and all that ``choose_greedily`` computed; None if it was not called,
    because a single environment explores. Random numbers are drawn on the CPU, where the actions
    are needed. The last ``greedy_rows`` rows always get the greedy action and draw no random
    numbers: the other rows get the same ones as without them.
    """
    count = len(obs) - greedy_rows
    if epsilon <= 0:
        choice = choose_greedily(obs)
        return choice["action"].cpu(), choice
    uniform = torch.rand(count, generator=generator)
    random = torch.randint(num_actions, (count,), generator=generator)
    if count == 1 and not greedy_rows and uniform.item() < epsilon:
        return random, None
    choice = choose_greedily(obs)
    greedy = choice["action"].cpu()
    if count == 1 and not greedy_rows:
        return greedy, choice
    exploring = torch.where(uniform < epsilon, random, greedy[:count])
    return torch.cat([exploring, greedy[count:]]) if greedy_rows else exploring, choice


def epsilon_greedy_from(greedy: Tensor, draws: Tensor, epsilon: Tensor, num_actions: int) -> Tensor:
    """Return the greedy actions, or random ones with probability epsilon.

    Each decision follows from two given uniform numbers, ``draws`` (observations, 2).
    """
    random = (draws[:, 1] * num_actions).long()
    return torch.where(draws[:, 0] < epsilon, random, greedy)
