"""Weights of unit length, and Adam that keeps them so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from hadamard import kernels

EPSILON = 1e-8


def on_sphere(x: Tensor, dim: int = -1) -> Tensor:
    """Scale vectors along a dimension to unit length."""
    return x * x.square().sum(dim, keepdim=True).clamp_min(EPSILON**2).rsqrt()


class SphereAdam(torch.optim.Adam):
    """Adam whose steps end on the sphere, and take a target with them.

    ``sphere`` are those parameters, (..., inputs, outputs), that are brought back to unit length
    along their inputs; ``targets`` follow the parameters, one each, by ``tau``. On a GPU all of it
    is one kernel, which reads and writes the weights once instead of three times.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float | Tensor,
        *,
        sphere: Sequence[Tensor] = (),
        targets: Iterable[Tensor] = (),
        tau: float = 0.0,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        super().__init__(parameters, lr=lr, fused=fused, capturable=capturable)
        self.sphere, self.targets, self.tau = list(sphere), list(targets), tau
        self.held: list[Tensor] = self.param_groups[0]["params"]
        fits = all(p.is_cuda and p.dtype == torch.float32 for p in self.held)
        self.kernels = kernels.load("hadamard.core.sphere_triton") if fits else None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move all parameters; all must have a gradient."""
        if closure is not None:
            raise ValueError("SphereAdam takes no closure: compute the gradient before step()")
        if any(weight.grad is None for weight in self.held):
            raise ValueError("a parameter has no gradient: call backward() before step()")
        if self.kernels is None:
            super().step()
            for weight in self.sphere:
                weight.copy_(on_sphere(weight, dim=-2))
            if self.targets:
                torch._foreach_lerp_(self.targets, self.held, self.tau)
            return
        (group,) = self.param_groups
        lists: list[list[Tensor]] = [[] for _ in range(6)]
        self._init_group(group, *lists)
        weights, gradients, first, second, _, counts = lists
        torch._foreach_add_(counts, 1)
        places = {id(weight) for weight in self.sphere}
        self.kernels.step(
            weights,
            gradients,
            first,
            second,
            self.targets or None,
            group["lr"],
            counts[0],
            self.tau,
            [id(weight) in places for weight in weights],
            group["betas"],
            group["eps"],
        )
