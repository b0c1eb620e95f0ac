"""Optimisers whose learning rate can change under a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.core.adam import Adam
from hadamard.core.jit import Compiler
from hadamard.core.types import State


def make(
    kind: Callable[..., torch.optim.Optimizer],
    parameters: Iterable[nn.Parameter],
    learning_rate: float | Tensor,
    device: torch.device,
    **options: Any,
) -> torch.optim.Optimizer:
    """Build an optimiser; on a GPU its whole state, the learning rate too, lives there.

    A learning rate that is a tensor is read anew at every step (see ``DecayingRate``).
    """
    if device.type != "cuda":
        return kind(parameters, lr=learning_rate, **options)
    # Fused optimisers read rates of single precision only, whatever the weights are.
    rate = torch.as_tensor(learning_rate, dtype=torch.float32, device=device)
    return kind(parameters, lr=rate, capturable=True, **options)


def in_one_pass(
    kind: type[Adam],
    parameter: nn.Parameter,
    learning_rate: float,
    device: torch.device,
    compiled: Compiler,
    **options: Any,
) -> torch.optim.Optimizer:
    """Build ``Adam`` or ``RAdam`` for one long parameter, in the form that this device likes."""
    form = {"compiled": compiled} if device.type == "cuda" else {"fused": True}
    return make(kind, [parameter], learning_rate, device, **form, **options)


class DecayingRate(nn.Module):
    """A learning rate that falls linearly over a number of updates, counted where it is read."""

    rate: Tensor
    updates: Tensor

    def __init__(self, initial: float, final: float, over: int, device: torch.device) -> None:
        super().__init__()
        self.initial, self.final, self.over = initial, final, over
        rate = torch.tensor(initial, dtype=torch.float32, device=device)  # as ``make`` asks for
        self.register_buffer("rate", rate)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64, device=device))

    @torch.no_grad()
    def advance(self) -> None:
        """Set the rate for the next update."""
        done = (self.updates / self.over).clamp_max(1.0)
        self.rate.copy_(self.initial + (self.final - self.initial) * done)
        self.updates += 1


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step down a loss."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    """Change the learning rate, in place where a graph reads it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


_OF_THE_DEVICE = ("capturable", "fused", "foreach")
"""Settings that say how a device computes, not what: a checkpoint of another does not bring its."""


class OptimiserState:
    """An optimiser as a part of a checkpoint; keeps its learning rate on its device."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.optimiser = optimiser

    def state_dict(self) -> State:
        """Return moments and settings."""
        state = self.optimiser.state_dict()
        # A rate may be one tensor that several optimisers read.
        groups = [{**group, "lr": float(group["lr"])} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    def load_state_dict(self, state: State) -> None:
        """Return to saved moments and settings, those that follow from the device excepted."""
        rates = [group["lr"] for group in self.optimiser.param_groups]
        groups = [
            {**saved, **{name: own[name] for name in _OF_THE_DEVICE if name in own}}
            for saved, own in zip(state["param_groups"], self.optimiser.param_groups, strict=True)
        ]
        self.optimiser.load_state_dict({**state, "param_groups": groups})
        for parameter, held in self.optimiser.state.items():
            for name, value in held.items():
                if isinstance(value, Tensor):  # torch may leave a count of steps on the CPU
                    held[name] = value.to(parameter.device)
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            if isinstance(rate, torch.Tensor):
                group["lr"] = rate.fill_(float(group["lr"]))
            else:
                group["lr"] = float(group["lr"])
