"""All parameters of a network in one vector, so that clipping and optimizers see one tensor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hadamard.compute.jit import Compiler, uncompiled

_ALIGNMENT = 256
"""Alignment of each parameter in bytes. Kernel selection, hence rounding, depends on it."""


class FlatParameters:
    """A module's trainable parameters as one vector, which an optimizer updates.

    The module's parameters keep their shapes and strides, but their memory is a part of
    ``vector``. Loading a state dict copies into it. Moving the module to another device or dtype
    would break the connection, so create this after moving.
    """

    @torch.no_grad()
    def __init__(self, module: nn.Module, compiled: Compiler = uncompiled) -> None:
        self._scale_down = compiled(_scale_down)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        kinds = {(p.dtype, p.device) for p in self.parameters}
        if len(kinds) != 1:
            listed = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise ValueError(
                "all parameters in one vector must have one dtype and one device, got: "
                + (listed or "no trainable parameters")
            )
        (dtype, device), offsets, size = kinds.pop(), [], 0
        elements = _ALIGNMENT // dtype.itemsize
        for parameter in self.parameters:
            offsets.append(size)
            size += -(-parameter.numel() // elements) * elements
        # The gaps between parameters are zero, have zero gradient and so stay zero.
        self.vector = nn.Parameter(torch.zeros(size, dtype=dtype, device=device))
        self.gradient = self.vector.grad = torch.zeros_like(self.vector)
        self._orders: list[list[int]] = []
        self._gaps: list[Tensor] = []
        ends = [*offsets[1:], size]
        for parameter, offset, end in zip(self.parameters, offsets, ends, strict=True):
            strides = torch.empty_like(parameter).stride()
            view = self.vector.detach().as_strided(parameter.shape, strides, offset)
            parameter.data = view.copy_(parameter)
            self._orders.append(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
            self._gaps.append(self.vector.new_zeros(end - offset - parameter.numel()))

    def backward(self, loss: Tensor) -> None:
        """Set the gradient of ``vector``; it is zero for parameters that the loss does not use."""
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        # In memory order and with one torch.cat: many small copies would take longer.
        pieces: list[Tensor] = []
        for gradient, order, gap in zip(gradients, self._orders, self._gaps, strict=True):
            pieces += [gradient.permute(order).flatten(), gap]
        torch.cat(pieces, out=self.gradient)

    @torch.no_grad()
    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to ``max_norm`` if it is longer; return the norm it had.

        The same as ``nn.utils.clip_grad_norm_``, which is slow on a GPU for one long tensor.
        """
        norm: Tensor = self._scale_down(self.gradient, max_norm)
        return norm


def _scale_down(gradient: Tensor, max_norm: float) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.mul_((max_norm / (norm + 1e-6)).clamp_max(1.0))
    return norm


def moments(optimizer: torch.optim.Optimizer, parameter: Tensor) -> Iterator[Tensor]:
    """Yield an optimizer's moments of a parameter, also where it is a part of a flat vector."""
    storage = parameter.untyped_storage().data_ptr()
    layout = parameter.shape, parameter.stride(), parameter.storage_offset()
    for optimized, state in optimizer.state.items():
        if optimized.untyped_storage().data_ptr() == storage:
            for value in state.values():
                if isinstance(value, Tensor) and value.shape == optimized.shape:
                    yield value.as_strided(*layout)


def gradient_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Tensor | None:
    """Return a parameter's gradient, also where it is a part of a flat vector's."""
    if parameter.grad is not None:
        return parameter.grad
    storage = parameter.untyped_storage().data_ptr()
    layout = parameter.shape, parameter.stride(), parameter.storage_offset()
    for group in optimizer.param_groups:
        for optimized in group["params"]:
            if optimized.untyped_storage().data_ptr() == storage and optimized.grad is not None:
                gradient: Tensor = optimized.grad.as_strided(*layout)
                return gradient
    return None
