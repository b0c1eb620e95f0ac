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
        states = [[_state(optimizer, w) for w in optimizer.weights] for optimizer in optimizers]
        # One for each weight, as in a checkpoint; they are always equal.
        self._steps = torch.stack(
            [torch.stack([state["step"].to(device) for state in own]) for own in states], dim=1
        )
        self.steps = self._steps[0]
        """Of each agent, float32."""
        for agent, own in enumerate(states):
            for weight, state in enumerate(own):
                state["step"] = self._steps[weight, agent]
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
        return [*self.weights, *(self.targets or []), self._steps, *self.mean, *self.mean_square]

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rates: Tensor) -> None:
        """Take a step; ``rates`` are the agents' learning rates."""
        self._steps += 1
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
        # One agent after the other: a loop over numbers rounds those at its end differently, and
        # each agent's step must be that which it would take alone.
        for agent, (step, rate) in enumerate(zip(self.steps.double(), rates.double(), strict=True)):
            scalars = adam_scalars(step, rate, *self.betas, self.eps)
            for index, weight in enumerate(self.weights):
                stacked = weight, gradients[index], self.mean[index], self.mean_square[index]
                own, gradient, mean, mean_square = (tensor[agent] for tensor in stacked)
                update_(own, gradient, mean, mean_square, *self.betas, *scalars)
                if self.project[index]:
                    own.copy_(on_sphere(own, dim=-2))
                if self.targets is not None:
                    self.targets[index][agent].lerp_(own, self.tau)


def _state(optimizer: SphereAdam, weight: Tensor) -> dict[str, Any]:
    """Return a weight's number of steps and moments, which it has from the first call."""
    state: dict[str, Any] = optimizer.state[weight]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    return state
