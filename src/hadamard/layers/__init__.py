"""Layers: the Hadamard Representation, and what it is compared with.

A variant is a file here with a ``build(recipe)`` function: it receives the recipe of one branch
(affine map -> norm -> activation) and returns a module with an ``outputs`` width.

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

import difflib
import importlib
import pkgutil

from torch import nn

from hadamard.layers.branch import Branch, Conv2dBranch, LinearBranch, Recipe
from hadamard.layers.convert import Conversion, hadamardize
from hadamard.layers.hadamard import Hadamard, HadamardConv2d, HadamardLinear
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
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.endswith("_triton"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "build"):
            found[info.name] = (module.build.__doc__ or "").partition("\n")[0]
    return found


def build(variant: str, recipe: Recipe) -> nn.Module:
    """Build a layer of the named variant.

    Examples:
        >>> build("crelu", LinearBranch(8, 4, activation="relu")).outputs
        8
    """
    known = variants()
    if variant not in known:
        near = difflib.get_close_matches(variant, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown layer variant {variant!r}{hint} Known: {', '.join(known)}")
    layer: nn.Module = importlib.import_module(f"{__name__}.{variant}").build(recipe)
    return layer
