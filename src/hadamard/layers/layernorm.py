"""The ordinary layer with LayerNorm before its activation."""

from torch import nn

from hadamard.layers.branch import Recipe


def build(recipe: Recipe) -> nn.Module:
    """LayerNorm: one branch, f(LayerNorm(A x + b))."""
    return recipe.varied(norm="layer").build()
