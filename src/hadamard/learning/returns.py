"""Returns over a rollout, time first: (steps, environments) tensors in and out.

``next_values[t]`` is the value of the state that followed step t, also where a time limit then
ended the episode. Termination ends the return; truncation ends only the trace, and the return
bootstraps from the next value.
"""

from __future__ import annotations

import torch
from torch import Tensor


def successor_values(
    values: Tensor, last_value: Tensor, truncated: Tensor, truncated_values: Tensor
) -> Tensor:
    """Return the value of each step's true successor.

    ``values`` belong to the observations acted on, ``last_value`` to the one after the rollout.
    After a truncation the next observation acted on is that of a new episode: the value of the
    old episode's final observation is in ``truncated_values``.
    """
    next_values = torch.cat([values[1:], last_value.unsqueeze(0)])
    return torch.where(truncated, truncated_values, next_values)


def _trace(deltas: Tensor, decay: Tensor) -> Tensor:
    """Return the sums x_t = delta_t + decay_t x_{t+1}."""
    sums = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + decay[t] * running
        sums[t] = running
    return sums


def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Generalized advantage estimation.

    Examples:
        >>> ones, never = torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.bool)
        >>> generalized_advantages(ones, ones, ones, never, never, 0.5, 0.9)  # 1 + 0.5 * 1 - 1
        tensor([[0.5000]])
    """
    alive = (~terminated).to(values.dtype)
    deltas = rewards + gamma * alive * next_values - values
    return _trace(deltas, gamma * gae_lambda * alive * (~truncated).to(values.dtype))


def lambda_returns(
    rewards: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    q_lambda: float,
) -> Tensor:
    """G_t = r_t + gamma (1 - d_t) [lambda G_{t+1} + (1 - lambda) V(s_{t+1})].

    The last step of the rollout and truncated ones bootstrap on V alone. Computed as the one-step
    target plus what later steps add to it.

    Examples:
        >>> r, v = torch.ones(2, 1), torch.full((2, 1), 2.0)
        >>> never = torch.zeros(2, 1, dtype=torch.bool)
        >>> lambda_returns(r, v, never, never, 0.5, 0.5).T  # G_1 = 2, G_0 = 1 + .5 (.5 * 2 + 1)
        tensor([[2., 2.]])
    """
    alive = gamma * (~terminated).to(rewards.dtype)
    one_step = rewards + alive * next_values
    decay = q_lambda * alive * (~truncated).to(rewards.dtype)
    # G_t = one_step_t + decay_t (G_{t+1} - V(s_{t+1})); after the last step G is V.
    returns = torch.empty_like(one_step)
    next_return = next_values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        returns[t] = one_step[t] + decay[t] * (next_return - next_values[t])
        next_return = returns[t]
    return returns


def discount_for_length(max_steps: int) -> float:
    """Return the discount whose horizon is a fifth of an episode, within [0.95, 0.995]."""
    if max_steps < 1:
        raise ValueError(
            "this environment has no time limit to derive a discount from: set --algo.gamma"
        )
    fifth = max_steps / 5
    return min(max((fifth - 1) / fifth, 0.95), 0.995)


def alive_before(terminated: Tensor) -> Tensor:
    """Return 1 for the steps of subsequences (draws, steps) up to and including an end, then 0.

    Examples:
        >>> alive_before(torch.tensor([[False, True, False, True]]))
        tensor([[1., 1., 0., 0.]])
    """
    alive = (~terminated[:, :-1]).to(torch.float32).cumprod(1)
    return torch.cat([alive.new_ones(len(alive), 1), alive], 1)


def multi_step_returns(reward: Tensor, terminated: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Return discounted rewards of subsequences (draws, steps), and the discount of the next value.

    Examples:
        >>> ends = torch.tensor([[False, False], [True, False]])
        >>> multi_step_returns(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), ends, 0.5)
        (tensor([2., 1.]), tensor([0.2500, 0.0000]))
    """
    steps = terminated.shape[1]
    alive = alive_before(terminated)
    discount = gamma ** torch.arange(steps, device=reward.device)
    next_discount = gamma**steps * alive[:, -1] * ~terminated[:, -1]
    return (reward * alive * discount).sum(1), next_discount
