"""One buffer for all parameters of a network: one tensor to clip and to update, not dozens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hadamard.core.jit import Compiler, as_it_is

_ALIGNMENT = 256
"""Bytes. Kernels choose by alignment, and results may hang on the choice: every parameter lies as
it would in memory of its own."""


class FlatParameters:
    """A module's trainable parameters, side by side in one buffer that an optimiser takes for one.

    To everyone else they are what they were, shapes and strides included; only their memory is a
    part of ``whole``. Loading a state copies into it. Moving the module would not: build this when
    the module is where it stays.
    """

    @torch.no_grad()
    def __init__(self, module: nn.Module, compiled: Compiler = as_it_is) -> None:
        self._scale_down = compiled(_scale_down)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        kinds = {(p.dtype, p.device) for p in self.parameters}
        if len(kinds) != 1:
            found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise ValueError(
                "parameters that share a buffer must be of one dtype and on one device, found: "
                + (found or "no trainable parameters")
            )
        (kind, device), places, size = kinds.pop(), [], 0
        step = _ALIGNMENT // kind.itemsize
        for parameter in self.parameters:
            places.append(size)
            size += -(-parameter.numel() // step) * step
        # What lies between parameters is zero, has no gradient and so stays zero.
        self.whole = nn.Parameter(torch.zeros(size, dtype=kind, device=device))
        self.gradient = self.whole.grad = torch.zeros_like(self.whole)
        self._orders: list[list[int]] = []
        self._gaps: list[Tensor] = []
        for parameter, place, end in zip(self.parameters, places, [*places[1:], size], strict=True):
            strides = torch.empty_like(parameter).stride()
            view = self.whole.detach().as_strided(parameter.shape, strides, place)
            parameter.data = view.copy_(parameter)
            self._orders.append(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
            self._gaps.append(self.whole.new_zeros(end - place - parameter.numel()))

    def backward(self, loss: Tensor) -> None:
        """Set the gradient of ``whole``; it is zero where the loss does not depend on it."""
        found = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        # As they lie in memory, and all in one go: dozens of small copies would take longer.
        parts: list[Tensor] = []
        for gradient, order, gap in zip(found, self._orders, self._gaps, strict=True):
            parts += [gradient.permute(order).flatten(), gap]
        torch.cat(parts, out=self.gradient)

    @torch.no_grad()
    def clip(self, largest: float) -> Tensor:
        """Scale the gradient down to a norm, if it is longer, and return the norm it had.

        As ``nn.utils.clip_grad_norm_``, which would leave most of a GPU idle on one long tensor.
        """
        norm: Tensor = self._scale_down(self.gradient, largest)
        return norm


def _scale_down(gradient: Tensor, largest: float) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.mul_((largest / (norm + 1e-6)).clamp_max(1.0))
    return norm


def moments(optimiser: torch.optim.Optimizer, parameter: Tensor) -> Iterator[Tensor]:
    """Yield an optimiser's moments of a parameter, which may be a part of a flat one."""
    storage = parameter.untyped_storage().data_ptr()
    layout = parameter.shape, parameter.stride(), parameter.storage_offset()
    for whole, state in optimiser.state.items():
        if whole.untyped_storage().data_ptr() == storage:
            for value in state.values():
                if isinstance(value, Tensor) and value.shape == whole.shape:
                    yield value.as_strided(*layout)
