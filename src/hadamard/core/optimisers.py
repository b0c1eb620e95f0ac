"""Optimisers whose learning rate can change under a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from hadamard.core.types import State


def make(
    kind: Callable[..., torch.optim.Optimizer],
    parameters: Iterable[nn.Parameter],
    learning_rate: float,
    device: torch.device,
    **options: Any,
) -> torch.optim.Optimizer:
    """Build an optimiser; on a GPU its whole state, the learning rate too, lives there."""
    if device.type != "cuda":
        return kind(parameters, lr=learning_rate, **options)
    rate = torch.tensor(learning_rate, device=device)
    return kind(parameters, lr=rate, capturable=True, **options)


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    """Change the learning rate, in place where a graph reads it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


class OptimiserState:
    """An optimiser as a part of a checkpoint; keeps its learning rate on its device."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.optimiser = optimiser

    def state_dict(self) -> State:
        """Return moments and settings."""
        return self.optimiser.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Return to saved moments and settings."""
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(state)
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            if isinstance(rate, torch.Tensor):
                group["lr"] = rate.fill_(float(group["lr"]))
            else:
                group["lr"] = float(group["lr"])
