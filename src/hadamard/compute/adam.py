"""Adam and RAdam that read and write the weights once per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as torch_adam

from hadamard.compute.jit import Compiler, uncompiled

Number = TypeVar("Number", float, Tensor)
Scalars = tuple[Number, Number, Number]
"""The step size, a factor for the root mean square of the gradients, and what is added to it.

They are computed in double precision, from numbers, or from one-element tensors where the step must
not depend on a value that only the host knows (in a CUDA graph).
"""


def adam_scalars(
    step: Number, rate: Number, beta1: float, beta2: float, eps: float
) -> Scalars[Number]:
    """Return Adam's scalars, which correct the bias of averages that start from zero."""
    return rate / (1 - beta1**step), (1 - beta2**step) ** -0.5, eps + 0 * step


def radam_scalars(
    step: Number, rate: Number, beta1: float, beta2: float, eps: float
) -> Scalars[Number]:
    """Return RAdam's scalars."""
    bias_correction = 1 - beta2**step
    max_length = 2 / (1 - beta2) - 1
    # The number of squared gradients in the average. With 5 or fewer their variance is unknown,
    # and the step does not use them.
    length = max_length - 2 * step * beta2**step / bias_correction
    rectified = 1.0 * (length > 5)
    length = 5 + (length - 5) * rectified
    ratio = (
        (length - 4) * (length - 2) * max_length / ((max_length - 4) * (max_length - 2) * length)
    )
    rectifier = (ratio * bias_correction) ** 0.5 * rectified + (1 - rectified)
    return rate / (1 - beta1**step) * rectifier, rectified, eps * rectified + (1 - rectified)


def update_(
    weights: Tensor,
    gradient: Tensor,
    mean: Tensor,
    mean_square: Tensor,
    beta1: float,
    beta2: float,
    step_size: Tensor,
    factor: Tensor,
    addend: Tensor,
) -> None:
    """Update the averages and the weights in place."""
    dtype = weights.dtype
    mean.lerp_(gradient, 1 - beta1)
    mean_square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    divisor = mean_square.sqrt().mul_(factor.to(dtype)).add_(addend.to(dtype))
    weights.sub_(torch.div(mean, divisor, out=divisor).mul_(step_size.to(dtype)))


class Adam(torch.optim.Adam):
    """``torch.optim.Adam`` up to rounding; either loads the other's state dict.

    ``fused`` uses PyTorch's loop over the weights, which is the fastest form on a CPU. On a GPU it
    is not: it gives each block of threads 65,536 weights, so a parameter of two million weights
    occupies only 30 of more than 100 processors. Without ``fused``, ``compiled`` can make one
    kernel of the whole update, and a CUDA graph can capture it.
    """

    scalars = staticmethod(adam_scalars)

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        fused: bool = False,
        compiled: Compiler = uncompiled,
        capturable: bool = False,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, fused=fused, capturable=capturable)
        # Compiled separately: a kernel of both would compute the scalars again for every weight.
        self.compiled_scalars, self.compiled_update = compiled(self.scalars), compiled(update_)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if closure is not None:
            name = type(self).__name__
            raise ValueError(f"{name} here takes no closure: compute the gradient before step()")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if group["fused"]:
                    self._update_fused(parameter, group)
                else:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, betas = self.state_of(parameter), group["betas"]
        state["step"] += 1
        # A Python number would become a constant of the compiled code.
        rate = torch.as_tensor(group["lr"], dtype=torch.float64, device=parameter.device)
        scalars = self.compiled_scalars(state["step"].double(), rate, *betas, group["eps"])
        averages = state["exp_avg"], state["exp_avg_sq"]
        self.compiled_update(parameter, parameter.grad, *averages, *betas, *scalars)

    def _update_fused(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Call PyTorch's loop with the rate and eps that give the step of our scalars."""
        state, (beta1, beta2) = self.state_of(parameter), group["betas"]
        step = float(state["step"]) + 1
        step_size, factor, addend = self.scalars(
            step, float(group["lr"]), beta1, beta2, group["eps"]
        )
        rate, eps = 0.0, 1.0
        if factor > 0:
            root = (1 - beta2**step) ** 0.5
            rate, eps = step_size / factor * (1 - beta1**step) / root, addend / factor / root
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
        if factor == 0:  # PyTorch's loop always divides by the root mean square
            parameter.add_(state["exp_avg"], alpha=-step_size / addend)

    def state_of(self, parameter: Tensor) -> dict[str, Any]:
        """Return a parameter's number of steps and averages, which it has from the first call."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            # float32, as in PyTorch, which also converts the steps of a loaded state.
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class RAdam(Adam):
    """``torch.optim.RAdam`` up to rounding, with a fused form, which PyTorch lacks."""

    scalars = staticmethod(radam_scalars)
