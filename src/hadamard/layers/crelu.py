"""Concatenated activation: every unit outputs both f(h) and f(-h)."""

import torch
from torch import Tensor, nn

from hadamard.layers.activations import activation_name
from hadamard.layers.branch import Branch, Recipe


class Concatenated(nn.Module):
    """[f(h), f(-h)] along the features: with ReLU one of the two always passes a gradient."""

    def __init__(self, branch: Branch, activation: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.branch, self.activation, self.feature_dim = branch, activation, feature_dim

    @property
    def outputs(self) -> int:
        """Twice the branch's width."""
        return 2 * self.branch.outputs

    @property
    def dormancy_kind(self) -> str:
        """How the diagnosis decides which outputs are dormant."""
        return "relu" if activation_name(self.activation) == "relu" else "auto"

    def forward(self, x: Tensor) -> Tensor:
        """Return f(h) and f(-h), concatenated."""
        h = self.branch(x)
        return torch.cat([self.activation(h), self.activation(-h)], dim=self.feature_dim)


def build(recipe: Recipe) -> nn.Module:
    """CReLU: one branch whose output is [f(h), f(-h)], twice as wide."""
    activation = recipe.build().activation
    return Concatenated(
        recipe.varied(activation="identity").build(), activation, recipe.feature_dim
    )
