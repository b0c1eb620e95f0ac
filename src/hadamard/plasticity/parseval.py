"""Parseval: the rows of each hidden layer's weights are kept orthogonal.

The loss gets strength * (64 / n)^2 * |W W^T - scale * I|^2 (Frobenius) for the weights W of every
hidden affine map, which has n rows: 4 * strength * (64 / n)^2 * (W W^T - scale * I) W is added to
the gradient.

Chung, Cherif, Meger and Precup, "Parseval Regularization for Continual Reinforcement Learning",
NeurIPS 2024, for dense networks. In the authors' wechu/parseval_reg the scale is 2, the squared
gain of the start, and strengths are meant for 64 neurons and scaled with the width (agent.py): 1e-3
for gridworlds and Meta-World, 1e-4 for CARL (main.py). Ours: the branches of a product are
orthogonal each by itself, a convolution's W has a row for each channel, where there are more rows
than inputs the columns are kept orthogonal instead, and the gradient is added after the algorithm
has clipped that of its loss. Meta-World's diagonal layer is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.plasticity._layers import hidden_layers
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {"nap": "both set the norms of the weights"}
_WIDTH = 64
"""Neurons of the layers that a strength is meant for."""


@dataclass(frozen=True)
class Config:
    """The settings of Parseval regularization."""

    strength: float = 1e-3
    """Weight of the distance from orthogonality in the loss, for a layer of 64 neurons."""
    scale: float = 2.0
    """Squared norm that the rows are pulled to."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.not_negative(self, "strength", section="parseval")
        require.above_zero(self, "scale", section="parseval")


class Parseval:
    """Adds the gradient of the distance from orthogonality."""

    def __init__(self, network: nn.Module, config: Config) -> None:
        self.config = config
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.branches: dict[str, int] = {}
        """How many branches each hidden weight joins."""
        for layer in hidden_layers(network):
            for affine in layer.affines:
                self.branches[names[id(affine.weight)]] = layer.branches

    def change_gradients(self, weights: Tensors, gradients: Tensors, state: Tensors) -> None:
        """Add the regularizer's gradient."""
        del state
        for name, branches in self.branches.items():
            if name not in gradients:
                continue  # this update did not use the layer
            weight, gradient = weights[name], gradients[name]
            rows = weight.flatten(2).unflatten(1, (branches, -1))
            factor = 4 * self.config.strength * (_WIDTH / rows.shape[-2]) ** 2
            change = factor * _toward_orthogonal(rows, self.config.scale)
            gradient.add_(change.flatten(1, 2).view(weight.shape))


def _toward_orthogonal(rows: Tensor, scale: float) -> Tensor:
    """Return (W W^T - scale * I) W for matrices W (..., rows, inputs), or W (W^T W - scale * I)."""
    wide = rows.shape[-2] <= rows.shape[-1]
    matrix = rows if wide else rows.mT
    gram = matrix @ matrix.mT
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    change = (gram - scale * identity) @ matrix
    return change if wide else change.mT


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> Parseval:
    """Return Parseval regularization for a network."""
    del optimizer, seed
    return Parseval(network, config)
