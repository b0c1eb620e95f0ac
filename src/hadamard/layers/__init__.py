"""Layers: the Hadamard Representation, and the layers it is compared with.

A variant is a file here with a ``build(recipe)`` function: it receives the recipe of one branch
(affine map -> norm -> activation) and returns a module whose ``outputs`` is its output width. A
plugin's module with this function is one, too.

Examples:
    >>> print("\\n".join(variants()))
    crelu
    fourier
    glu
    hadamard
    hadamard2
    hadamax
    layernorm
    plain
    widened
"""

from __future__ import annotations

from torch import nn

from hadamard.core import discover
from hadamard.layers.branch import Branch, Conv2dBranch, LinearBranch, Recipe
from hadamard.layers.conversion.convert import Conversion, hadamardize
from hadamard.layers.fused import HadamardConv2d, HadamardLinear
from hadamard.layers.hadamard import Hadamard
from hadamard.layers.widened import matched_width

__all__ = [
    "Branch",
    "Conv2dBranch",
    "Conversion",
    "Hadamard",
    "HadamardConv2d",
    "HadamardLinear",
    "LinearBranch",
    "Recipe",
    "build",
    "hadamardize",
    "matched_width",
    "variants",
]


def variants() -> dict[str, str]:
    """Return the layer variants by name, each with a one-line description."""
    return {name: discover.summary(__name__, name) for name in discover.names(__name__)}


def build(variant: str, recipe: Recipe) -> nn.Module:
    """Build a layer of the named variant.

    Examples:
        >>> build("crelu", LinearBranch(8, 4, activation="relu")).outputs
        8
    """
    layer: nn.Module = discover.find(__name__, variant, "layer variant").build(recipe)
    return layer
