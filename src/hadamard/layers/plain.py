"""The ordinary layer, which is one branch."""

from torch import nn

from hadamard.layers.branch import Recipe


def build(recipe: Recipe) -> nn.Module:
    """Baseline: one branch, f(A x + b)."""
    return recipe.build()
