"""Weights of several branches in one module: joining, splitting, state-dict keys."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hadamard.layers.conv import Conv2d
from hadamard.layers.norm import BranchNorm

M = TypeVar("M", bound=nn.Module)

# The attribute that counts a module's outputs (of a norm, its branches), which its repr shows.
_WIDTH_ATTRIBUTE = {
    nn.Linear: "out_features",
    nn.Conv2d: "out_channels",
    Conv2d: "out_channels",
    BranchNorm: "branches",
}
_JOINED = ("affine.weight", "affine.bias", "norm.weight", "norm.bias")


def join_modules(modules: Sequence[M]) -> M:
    """Return one module that computes the concatenated outputs of all of these."""
    first = modules[0]
    weights = {
        name: torch.cat([module.get_parameter(name).detach() for module in modules])
        for name, _ in first.named_parameters()
    }
    return _resized(first, _width(first) * len(modules), weights)


def split_module(module: M, count: int) -> list[M]:
    """Split a joined module into ``count`` modules with copies of their weights."""
    weights = {name: p.detach().chunk(count) for name, p in module.named_parameters()}
    width = _width(module) // count
    return [
        _resized(module, width, {name: parts[i].clone() for name, parts in weights.items()})
        for i in range(count)
    ]


def _width(module: nn.Module) -> int:
    width: int = getattr(module, _WIDTH_ATTRIBUTE[type(module)])
    return width


def _resized(module: M, width: int, weights: dict[str, Tensor]) -> M:
    """Copy a module with another width and other weights."""
    result = copy.copy(module)
    result._parameters = dict(module._parameters)
    for name, weight in weights.items():
        old = module.get_parameter(name)
        setattr(result, name, nn.Parameter(weight, requires_grad=old.requires_grad))
    setattr(result, _WIDTH_ATTRIBUTE[type(module)], width)
    return result


def save_branches(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, _metadata: Any
) -> None:
    """State-dict hook: save ``affine.weight`` as ``branches.0.affine.weight`` and so on."""
    count: int = module.branch_count  # type: ignore[assignment]
    saved = {name: state_dict.pop(prefix + name) for name in _JOINED if prefix + name in state_dict}
    for i in range(count):
        for name, weight in saved.items():
            state_dict[f"{prefix}branches.{i}.{name}"] = weight.chunk(count)[i]


def load_branches(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_rest: Any) -> None:
    """Load-state-dict hook: the inverse of ``save_branches``."""
    count: int = module.branch_count  # type: ignore[assignment]
    for name in _JOINED:
        keys = [f"{prefix}branches.{i}.{name}" for i in range(count)]
        if all(key in state_dict for key in keys):
            state_dict[prefix + name] = torch.cat([state_dict.pop(key) for key in keys])
