"""Parseval: the rows of each hidden layer's weights are kept orthogonal.

The loss gets strength * |W W^T - scale * I|^2 (Frobenius) for the weights W of every hidden affine
map, so the gradient gets 4 * strength * (W W^T - scale * I) W.

Chung, Cherif, Meger and Precup, "Parseval Regularization for Continual Reinforcement Learning",
NeurIPS 2024, for dense networks. Ours: the branches of a product are orthogonal each by itself, a
convolution's W has a row for each channel, where there are more rows than inputs the columns are
kept orthogonal instead, and the gradient is added after the algorithm has clipped that of its loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.plasticity._layers import hidden_layers
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {"nap": "both set the norms of the weights"}


@dataclass(frozen=True)
class Config:
    """The settings of Parseval regularization."""

    strength: float = 1e-3
    """Weight of the distance from orthogonality in the loss."""
    scale: float = 1.0
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
        factor = 4 * self.config.strength
        for name, branches in self.branches.items():
            weight, gradient = weights[name], gradients[name]
            rows = weight.flatten(2).unflatten(1, (branches, -1))
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
