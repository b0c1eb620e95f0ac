"""ReGraMa: neurons whose gradients are small are reinitialized, with outgoing weights of zero.

A neuron's score is the mean absolute gradient of its incoming weights in the newest update, divided
by its layer's mean. A neuron whose score is at most tau is recycled as in ReDo. One neuron of a
product layer is the same row of every branch: its gradient is that of all of them.

Liu et al., "Measure Gradients, Not Activations! Enhancing Neuronal Activity in Deep Reinforcement
Learning", NeurIPS 2025. Score and period are as in the authors' grad-based-plasticity-metrics,
utils/ReDo.py and SAC/configs.py (read in a copy of that repository). Ours: tau, which is 0 there;
outgoing weights of zero, which are left alone there; and branches count as one neuron.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.plasticity._layers import hidden_layers
from hadamard.plasticity._recycling import recycle, relative
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {"continual_backprop": "both recycle neurons, by scores that differ"}
_PURPOSE = 32
"""Of the random numbers, see ``child_seed``."""


@dataclass(frozen=True)
class Config:
    """ReGraMa's settings."""

    tau: float = 0.01
    """Largest score at which a neuron is recycled."""
    period: int = 1_000
    """Gradient updates between recyclings."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.positive(self, "period", section="regrama")
        require.not_negative(self, "tau", section="regrama")


class ReGraMa:
    """Recycles neurons by their gradients every ``period`` updates."""

    def __init__(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
    ) -> None:
        self.optimizer, self.config, self.seed = optimizer, config, seed
        self.layers = hidden_layers(network)
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.weights = {
            layer.name: [names[id(affine.weight)] for affine in layer.affines]
            for layer in self.layers
        }
        self.recycled = 0
        """Neurons recycled the last time."""
        self.state = {
            layer.name: layer.affines[0].get_parameter("weight").detach().new_zeros(layer.count)
            for layer in self.layers
        }
        """Each neuron's mean absolute gradient in the newest update."""

    def change_gradients(self, weights: Tensors, gradients: Tensors, state: Tensors) -> None:
        """Remember the size of the gradients; they stay as they are."""
        del weights
        for layer, names in self.weights.items():
            if any(name not in gradients for name in names):
                continue  # this update did not use the layer
            count = state[layer].shape[1]
            sizes = [
                gradients[name].abs().flatten(2).mean(2).unflatten(1, (-1, count)).mean(1)
                for name in names
            ]
            state[layer].copy_(torch.stack(sizes).mean(0))

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Recycle if it is time."""
        del obs
        if updates % self.config.period:
            return
        with seeded(child_seed(self.seed, _PURPOSE, updates)):
            self.recycled = sum(
                recycle(layer, relative(self.state[layer.name]) <= self.config.tau, self.optimizer)
                for layer in self.layers
            )


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> ReGraMa:
    """Return ReGraMa for a network and its optimizer."""
    return ReGraMa(network, optimizer, config, seed)
