"""Layers: the Hadamard Representation, and the layers it is compared with.

A variant is a file here with a ``build(recipe)`` function: it receives the recipe of one branch
(affine map -> norm -> activation) and returns a module whose ``outputs`` is its output width.

Examples:
    >>> print("\\n".join(variants()))
    crelu
    hadamard
    hadamard2
    layernorm
    plain
    widened
"""

from __future__ import annotations

import importlib
import pkgutil

from torch import nn

from hadamard.layers.branch import Branch, Conv2dBranch, LinearBranch, Recipe
from hadamard.layers.conversion.convert import Conversion, hadamardize
from hadamard.layers.fused import HadamardConv2d, HadamardLinear
from hadamard.layers.hadamard import Hadamard
from hadamard.layers.widened import matched_width
from hadamard.text import unknown

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
    descriptions = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "build"):
            descriptions[info.name] = (module.build.__doc__ or "").partition("\n")[0]
    return descriptions


def build(variant: str, recipe: Recipe) -> nn.Module:
    """Build a layer of the named variant.

    Examples:
        >>> build("crelu", LinearBranch(8, 4, activation="relu")).outputs
        8
    """
    names = variants()
    if variant not in names:
        raise ValueError(unknown("layer variant", variant, names))
    layer: nn.Module = importlib.import_module(f"{__name__}.{variant}").build(recipe)
    return layer
