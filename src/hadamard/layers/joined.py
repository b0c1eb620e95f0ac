"""Several modules of one kind held as one, and the names their weights are saved under."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hadamard.layers.conv import Conv2d
from hadamard.layers.norm import BranchNorm

M = TypeVar("M", bound=nn.Module)

# What counts the outputs, so that the joined module still describes itself.
_WIDTH = {
    nn.Linear: "out_features",
    nn.Conv2d: "out_channels",
    Conv2d: "out_channels",
    BranchNorm: "branches",
}
_SPLIT = ("affine.weight", "affine.bias", "norm.weight", "norm.bias")


def join(modules: Sequence[M]) -> M:
    """Make one module that computes all of these side by side, with their weights."""
    return _resized(
        modules[0],
        len(modules),
        1,
        {
            name: torch.cat([module.get_parameter(name).detach() for module in modules])
            for name, _ in modules[0].named_parameters()
        },
    )


def split(module: M, count: int) -> list[M]:
    """Undo ``join``."""
    weights = {name: p.detach().chunk(count) for name, p in module.named_parameters()}
    return [
        _resized(module, 1, count, {name: parts[i].clone() for name, parts in weights.items()})
        for i in range(count)
    ]


def _resized(module: M, times: int, over: int, weights: dict[str, Tensor]) -> M:
    result = copy.copy(module)
    result._parameters = dict(module._parameters)
    for name, weight in weights.items():
        old = module.get_parameter(name)
        setattr(result, name, nn.Parameter(weight, requires_grad=old.requires_grad))
    attribute = _WIDTH[type(module)]
    setattr(result, attribute, getattr(module, attribute) * times // over)
    return result


def name_branches(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, _metadata: Any
) -> None:
    """State-dict hook: save ``affine.weight`` as ``branches.0.affine.weight`` and so on."""
    count: int = module.branch_count  # type: ignore[assignment]
    saved = {name: state_dict.pop(prefix + name) for name in _SPLIT if prefix + name in state_dict}
    for i in range(count):
        for name, weight in saved.items():
            state_dict[f"{prefix}branches.{i}.{name}"] = weight.chunk(count)[i]


def join_named_branches(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, *_rest: Any
) -> None:
    """Load-state-dict hook: the inverse of ``name_branches``."""
    count: int = module.branch_count  # type: ignore[assignment]
    for name in _SPLIT:
        keys = [f"{prefix}branches.{i}.{name}" for i in range(count)]
        if all(key in state_dict for key in keys):
            state_dict[prefix + name] = torch.cat([state_dict.pop(key) for key in keys])
