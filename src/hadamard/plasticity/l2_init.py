"""L2-init: the weights are pulled toward their initial values.

The loss gets the term strength * |w - w0|^2 over all parameters, so the gradient gets
2 * strength * (w - w0).

Kumar, Marklund and Van Roy, "Maintaining Plasticity in Continual Learning via Regenerative
Regularization", CoLLAs 2025. The strength is tuned for each problem, from 1e-2 to 1e-5 in the
authors' skumar9876/L2_Init (utils/commands/train), whose code, unlike the paper, halves the term.
Ours: the default, one of these; and the term's gradient is added after the algorithm has clipped
that of its loss, so that clipping does not weaken the pull.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hadamard.core import require
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {"plasticity_injection": "after an injection the initial weights are no goal any more"}


@dataclass(frozen=True)
class Config:
    """L2-init's settings."""

    strength: float = 1e-3
    """Weight of the squared distance from the initial weights in the loss."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.not_negative(self, "strength", section="l2-init")


class L2Init:
    """Adds the gradient of the distance from the initial weights."""

    def __init__(self, network: nn.Module, config: Config) -> None:
        self.config = config
        self.state = {
            name: parameter.detach().clone()
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        }
        """The initial weights."""

    def change_gradients(self, weights: Tensors, gradients: Tensors, state: Tensors) -> None:
        """Add the regularizer's gradient."""
        for name, gradient in gradients.items():
            gradient.add_(weights[name] - state[name], alpha=2 * self.config.strength)


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> L2Init:
    """Return L2-init for a network as it is now."""
    del optimizer, seed
    return L2Init(network, config)
