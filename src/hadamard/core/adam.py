"""Adam and RAdam in one pass over the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as torch_adam

from hadamard.core.jit import Compiler, as_it_is

Number = TypeVar("Number", float, Tensor)
Scalars = tuple[Number, Number, Number]
"""The size of a step, and what to make of the deviation: a factor and what is added.

They are worked out in double precision, as all that follows from a count of steps; from numbers, or
from tensors of one, where the host must not decide anything.
"""


def adam(step: Number, rate: Number, beta1: float, beta2: float, eps: float) -> Scalars[Number]:
    """Return Adam's scalars: both averages started from zero, which they are corrected for."""
    return rate / (1 - beta1**step), (1 - beta2**step) ** -0.5, eps + 0 * step


def radam(step: Number, rate: Number, beta1: float, beta2: float, eps: float) -> Scalars[Number]:
    """Return RAdam's scalars."""
    unbiased = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    # How many squares the average knows. Up to 5 its variance is unknown, and it is left out.
    known = longest - 2 * step * beta2**step / unbiased
    rectified = 1.0 * (known > 5)
    known = 5 + (known - 5) * rectified
    trust = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
    rectifier = (trust * unbiased) ** 0.5 * rectified + (1 - rectified)
    return rate / (1 - beta1**step) * rectifier, rectified, eps * rectified + (1 - rectified)


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

    ``fused`` takes PyTorch's loop over the weights, which on a CPU is the fastest. On a GPU it is
    not: it gives 65,536 weights to each block of threads, so of over a hundred processors one
    parameter of two million weights takes thirty. Without it a compiler may make one pass of it
    all, and nothing is decided on the host: a captured graph may hold it.
    """

    scalars = staticmethod(adam)

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        fused: bool = False,
        compiled: Compiler = as_it_is,
        capturable: bool = False,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, fused=fused, capturable=capturable)
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
                    take = self._fused if group["fused"] else self._move
                    take(parameter, group)

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, betas = self._state_of(parameter), group["betas"]
        state["step"] += 1
        # A number would be a part of the compiled code.
        rate = torch.as_tensor(group["lr"], dtype=torch.float64, device=parameter.device)
        scalars = self.coefficients(state["step"].double(), rate, *betas, group["eps"])
        averages = state["exp_avg"], state["exp_avg_sq"]
        self.move(parameter, parameter.grad, *averages, *betas, *scalars)

    def _fused(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Call PyTorch's loop with the rate and eps that make it take a step of these scalars."""
        state, (beta1, beta2) = self._state_of(parameter), group["betas"]
        step = float(state["step"]) + 1
        size, factor, added = self.scalars(step, float(group["lr"]), beta1, beta2, group["eps"])
        rate, eps = 0.0, 1.0
        if factor > 0:
            unbiased = (1 - beta2**step) ** 0.5
            rate, eps = size / factor * (1 - beta1**step) / unbiased, added / factor / unbiased
        assert parameter.grad is not None
        torch_adam(
            [parameter],
            [parameter.grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=rate,
            weight_decay=0.0,
            eps=eps,
            maximize=False,
        )
        if factor == 0:  # without the deviation, which that loop always divides by
            parameter.add_(state["exp_avg"], alpha=-size / added)

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            # As PyTorch counts; a state that is loaded is brought to that too.
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class RAdam(Adam):
    """``torch.optim.RAdam``, to the last digits, which has no fused form."""

    scalars = staticmethod(radam)
