"""Optimizers whose learning rate can change under a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hadamard.compute.adam import Adam
from hadamard.compute.jit import Compiler
from hadamard.core.types import State

Kind = TypeVar("Kind", bound=torch.optim.Optimizer)


def make(
    kind: Callable[..., Kind],
    parameters: Iterable[nn.Parameter],
    learning_rate: float | Tensor,
    device: torch.device,
    **options: Any,
) -> Kind:
    """Build an optimizer; on a GPU its whole state, the learning rate included, is kept there.

    A learning rate that is a tensor is read at every step (see ``DecayingRate``).
    """
    if device.type != "cuda":
        return kind(parameters, lr=learning_rate, **options)
    # Fused optimizers only read float32 rates, whatever the weights are.
    rate = torch.as_tensor(learning_rate, dtype=torch.float32, device=device)
    return kind(parameters, lr=rate, capturable=True, **options)


def make_for_vector(
    kind: type[Adam],
    parameter: nn.Parameter,
    learning_rate: float,
    device: torch.device,
    compiled: Compiler,
    **options: Any,
) -> torch.optim.Optimizer:
    """Build ``Adam`` or ``RAdam`` for one flat vector of weights, in its fastest form."""
    fastest = {"compiled": compiled} if device.type == "cuda" else {"fused": True}
    return make(kind, [parameter], learning_rate, device, **fastest, **options)


class DecayingRate(nn.Module):
    """A learning rate that falls linearly over ``total_updates``, which it counts on its device."""

    rate: Tensor
    updates: Tensor
    initial: Tensor
    change: Tensor

    def __init__(
        self, initial: float, final: float, total_updates: int, device: torch.device
    ) -> None:
        super().__init__()
        self.total_updates = total_updates
        rate = torch.tensor(initial, dtype=torch.float32, device=device)  # as ``make`` requires
        self.register_buffer("rate", rate)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64, device=device))
        # Tensors, so that agents with different rates can be stacked.
        self.register_buffer("initial", rate.clone(), persistent=False)
        change = torch.full_like(rate, final - initial)
        self.register_buffer("change", change, persistent=False)

    @torch.no_grad()
    def advance(self) -> None:
        """Set the rate for the next update."""
        progress = (self.updates / self.total_updates).clamp_max(1.0)
        self.rate.copy_(self.initial + self.change * progress)
        self.updates += 1


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step of gradient descent on a loss, in the optimizer's own parameters alone."""
    optimizer.zero_grad()
    loss.backward(inputs=_parameters(optimizer))
    optimizer.step()


def descend_clipped(optimizer: torch.optim.Optimizer, loss: Tensor, max_norm: float) -> Tensor:
    """Do the same with the gradient clipped to a largest norm; return its norm before."""
    parameters = _parameters(optimizer)
    optimizer.zero_grad()
    loss.backward(inputs=parameters)
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    return norm


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Change the learning rate, in place where a graph reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


_DEVICE_SETTINGS = ("capturable", "fused", "foreach")
"""Settings that depend on the device, not on the run: they are not taken from checkpoints."""


class OptimizerState:
    """An optimizer as a part of a checkpoint; its learning rate stays on its device."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> State:
        """Return moments and settings."""
        state = self.optimizer.state_dict()
        # A rate may be a tensor that several optimizers share.
        groups = [{**group, "lr": float(group["lr"])} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    def load_state_dict(self, state: State) -> None:
        """Restore moments and settings, except those that depend on the device.

        A setting that was not saved stays as it is.
        """
        rates = [group["lr"] for group in self.optimizer.param_groups]
        groups = []
        for saved, current in zip(state["param_groups"], self.optimizer.param_groups, strict=True):
            own = {name: value for name, value in current.items() if name != "params"}
            of_device = {name: own[name] for name in _DEVICE_SETTINGS if name in own}
            groups.append({**own, **saved, **of_device})
        self.optimizer.load_state_dict({**state, "param_groups": groups})
        for parameter, moments in self.optimizer.state.items():
            for name, value in moments.items():
                if not isinstance(value, Tensor) or value.shape not in ((), parameter.shape):
                    raise ValueError(f"{name} must be a number or of {tuple(parameter.shape)}")
                if value.device != parameter.device:  # PyTorch may leave the step count on the CPU
                    moments[name] = value.to(parameter.device)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(rate, torch.Tensor):
                group["lr"] = rate.fill_(float(group["lr"]))
            else:
                group["lr"] = float(group["lr"])
