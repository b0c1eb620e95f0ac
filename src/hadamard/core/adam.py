"""Adam and RAdam in few passes over the weights, and in one where they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.core.jit import Compiler, as_it_is

Scalars = tuple[Tensor, Tensor, Tensor]
"""The size of a step, and what to make of the deviation: a factor and what is added.

They are worked out in double precision, as all that follows from a count of steps.
"""


def adam(step: Tensor, rate: Tensor, beta1: float, beta2: float, eps: float) -> Scalars:
    """Return Adam's scalars: both averages started from zero, which they are corrected for."""
    return rate / (1 - beta1**step), (1 - beta2**step).rsqrt(), torch.full_like(step, eps)


def radam(step: Tensor, rate: Tensor, beta1: float, beta2: float, eps: float) -> Scalars:
    """Return RAdam's scalars."""
    unbiased = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    # How many squares the average knows. Up to 5 its variance is unknown, and it is left out.
    known = longest - 2 * step * beta2**step / unbiased
    rectified = known > 5
    known = known.clamp_min(5)
    trust = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
    size = rate / (1 - beta1**step) * torch.where(rectified, (trust * unbiased).sqrt(), 1.0)
    return size, rectified.to(step.dtype), torch.where(rectified, eps, 1.0)


def move_(
    weights: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    beta1: float,
    beta2: float,
    size: Tensor,
    factor: Tensor,
    added: Tensor,
) -> None:
    """Update the averages and the weights in place."""
    kind = weights.dtype  # of the loops over all weights
    mean.lerp_(gradient, 1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    deviation = square.sqrt().mul_(factor.to(kind)).add_(added.to(kind))
    weights.sub_(torch.div(mean, deviation, out=deviation).mul_(size.to(kind)))


class Adam(torch.optim.Adam):
    """``torch.optim.Adam``, to the last digits; their states can be loaded into each other.

    PyTorch's fused form gives 65,536 weights to each block of threads: of a GPU of over a hundred
    processors one parameter of two million weights takes thirty. Here a compiler may make one pass
    over the weights of it all, and nothing is decided on the host: a captured graph may hold it.
    """

    scalars = staticmethod(adam)

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        compiled: Compiler = as_it_is,
        capturable: bool = False,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, capturable=capturable)
        # Apart, or a compiler would work the scalars out for every weight anew.
        self.coefficients, self.move = compiled(self.scalars), compiled(move_)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        if closure is not None:
            name = type(self).__name__
            raise ValueError(f"{name} here takes no closure: compute the gradient before step()")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, betas = self._state_of(parameter), group["betas"]
        state["step"] += 1
        # A number would be a part of the compiled code.
        rate = torch.as_tensor(group["lr"], dtype=torch.float64, device=parameter.device)
        scalars: Scalars = self.coefficients(state["step"].double(), rate, *betas, group["eps"])
        averages = state["exp_avg"], state["exp_avg_sq"]
        self.move(parameter, parameter.grad, *averages, *betas, *scalars)

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float64, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class RAdam(Adam):
    """``torch.optim.RAdam``, to the last digits, which has no fused form."""

    scalars = staticmethod(radam)
