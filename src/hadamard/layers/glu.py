"""Gated linear units: a linear branch times an activated one.

Dauphin et al., "Language Modeling with Gated Convolutional Networks", ICML 2017, gate by a sigmoid;
Shazeer, "GLU Variants Improve Transformer", 2020, by other activations (read in the abstract of the
latter). Ours: the gate's activation is that of the network.
"""

from torch import nn

from hadamard.layers.branch import Recipe
from hadamard.layers.hadamard import Hadamard


def build(recipe: Recipe) -> nn.Module:
    """GLU: a branch without an activation times one with it, (A1 x + b1) * f(A2 x + b2)."""
    return Hadamard(recipe.varied(activation="identity").build(), recipe.build())
