"""``SphereAdam`` for many agents at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.compute.adam import adam_scalars, update_
from hadamard.compute.sphere import SphereAdam, on_sphere
from hadamard.compute.stack import share_tensors


class StackedSphereAdam:
    """Adam on the sphere for all agents: each has its own number of steps and learning rate.

    ``weights`` are stacked parameters by name; ``optimizers`` are the agents' own, whose moments
    become rows of the stacked ones. ``targets`` are stacked weights that move towards them by
    ``tau`` at each step. On a GPU a step is one kernel, as in ``SphereAdam``.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        optimizers: Sequence[SphereAdam],
        targets: Sequence[Tensor] | None = None,
        tau: float = 0.0,
    ) -> None:
        self.names, self.weights = list(weights), list(weights.values())
        self.targets, self.tau = targets, tau
        first = optimizers[0]
        (group,) = first.param_groups
        self.betas: tuple[float, float] = group["betas"]
        self.eps: float = group["eps"]
        self.kernels = first.kernels
        sphere = {id(weight) for weight in first.sphere}
        self.project = [id(weight) in sphere for weight in first.weights]
        device = self.weights[0].device
        states = [
            [_state(optimizer, weight) for weight in optimizer.weights] for optimizer in optimizers
        ]
        self.steps = torch.stack([own[0]["step"].to(device) for own in states])
        """Of each agent, float32."""
        for step, own in zip(self.steps, states, strict=True):
            for state in own:
                state["step"] = step
        self.mean, self.mean_square = (
            [
                share_tensors([{name: own[index][name]} for own in states])[name]
                for index in range(len(self.weights))
            ]
            for name in ("exp_avg", "exp_avg_sq")
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All that a step changes."""
        return [*self.weights, *(self.targets or []), self.steps, *self.mean, *self.mean_square]

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rates: Tensor) -> None:
        """Take a step; ``rates`` are the agents' learning rates."""
        self.steps += 1
        ordered = [gradients[name] for name in self.names]
        if self.kernels is None:
            self._plain_step(ordered, rates)
            return
        self.kernels.step(
            self.weights,
            ordered,
            self.mean,
            self.mean_square,
            self.targets,
            rates,
            self.steps,
            self.tau,
            self.project,
            self.betas,
            self.eps,
        )

    def _plain_step(self, gradients: Sequence[Tensor], rates: Tensor) -> None:
        steps, rates = self.steps.double().unsqueeze(1), rates.double().unsqueeze(1)
        scalars = adam_scalars(steps, rates, *self.betas, self.eps)
        count = len(steps)
        for index, weight in enumerate(self.weights):
            tensors = weight, gradients[index], self.mean[index], self.mean_square[index]
            weights, gradient, mean, mean_square = (t.reshape(count, -1) for t in tensors)
            update_(weights, gradient, mean, mean_square, *self.betas, *scalars)
            if self.project[index]:
                weight.copy_(on_sphere(weight, dim=-2))
        if self.targets is not None:
            torch._foreach_lerp_(list(self.targets), self.weights, self.tau)


def _state(optimizer: SphereAdam, weight: Tensor) -> dict[str, Any]:
    """Return a weight's number of steps and moments, which it has from the first call."""
    state: dict[str, Any] = optimizer.state[weight]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    return state
