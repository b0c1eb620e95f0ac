"""Weights of unit length, and Adam that keeps them so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from hadamard.compute import kernels

EPSILON = 1e-8


def on_sphere(x: Tensor, dim: int = -1) -> Tensor:
    """Scale vectors along a dimension to unit length."""
    return x * x.square().sum(dim, keepdim=True).clamp_min(EPSILON**2).rsqrt()


class SphereAdam(torch.optim.Adam):
    """Adam that projects weights onto the unit sphere after each step.

    ``sphere`` are the parameters to project, (..., inputs, outputs): each output's weights are
    scaled to unit length. ``step_with_targets`` also moves target weights. On a GPU either is one
    kernel, which reads and writes the weights once.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float | Tensor,
        *,
        sphere: Sequence[Tensor] = (),
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        super().__init__(parameters, lr=lr, fused=fused, capturable=capturable)
        self.sphere = list(sphere)
        self.weights: list[Tensor] = self.param_groups[0]["params"]
        on_gpu = all(p.is_cuda and p.dtype == torch.float32 for p in self.weights)
        self.kernels = kernels.load("sphere_triton") if on_gpu else None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take Adam's step, then project; all parameters must have a gradient."""
        if closure is not None:
            raise ValueError("SphereAdam takes no closure: compute the gradient before step()")
        self._require_gradients()
        if self.kernels is not None:
            self._fused_step(None, 0.0)
            return
        super().step()
        for weight in self.sphere:
            weight.copy_(on_sphere(weight, dim=-2))

    @torch.no_grad()
    def step_with_targets(self, targets: Sequence[Tensor], tau: float) -> None:
        """Take Adam's step, project, then ``target <- target + tau (weight - target)``.

        ``targets`` are one tensor for each parameter, in their order.
        """
        if len(targets) != len(self.weights):
            raise ValueError(f"{len(targets)} targets for {len(self.weights)} parameters")
        if self.kernels is not None:
            self._require_gradients()
            self._fused_step(targets, tau)
            return
        self.step()
        torch._foreach_lerp_(list(targets), self.weights, tau)

    def _require_gradients(self) -> None:
        if any(weight.grad is None for weight in self.weights):
            raise ValueError("a parameter has no gradient: call backward() before step()")

    def _fused_step(self, targets: Sequence[Tensor] | None, tau: float) -> None:
        assert self.kernels is not None
        (group,) = self.param_groups
        lists: list[list[Tensor]] = [[] for _ in range(6)]
        self._init_group(group, *lists)
        weights, gradients, first, second, _, counts = lists
        torch._foreach_add_(counts, 1)
        sphere = {id(weight) for weight in self.sphere}
        self.kernels.step(
            weights,
            gradients,
            first,
            second,
            targets,
            group["lr"],
            counts[0],
            tau,
            [id(weight) in sphere for weight in weights],
            group["betas"],
            group["eps"],
        )
