"""The Hadamard Representation: the product of independently parameterized branches.

z = f(A1 x + b1) * f(A2 x + b2). ``Hadamard`` multiplies modules of any kind; ``fuse`` prefers the
faster layers of ``hadamard.layers.fused`` where the branches allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from hadamard.layers.activations import activation_name
from hadamard.layers.branch import Branch, Recipe, check_branch_count
from hadamard.layers.conv import Conv2d
from hadamard.layers.fused import FusedHadamard, HadamardConv2d, HadamardLinear
from hadamard.layers.norm import BranchNorm


class Hadamard(nn.Module):
    """Elementwise product of two or more modules applied to the same input.

    Examples:
        >>> import torch
        >>> layer = Hadamard(nn.Sequential(nn.Linear(3, 4), nn.Tanh()),
        ...                  nn.Sequential(nn.Linear(3, 4), nn.Sigmoid()))
        >>> layer(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    #: Tells the diagnosis that the output is a hidden representation.
    dormancy_kind = "auto"

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        check_branch_count(len(branches))
        for i, branch in enumerate(branches):
            if not isinstance(branch, nn.Module):
                raise TypeError(f"branch {i} must be an nn.Module, got {type(branch).__name__}")
        shared = _shared_parameter(branches)
        if shared is not None:
            raise ValueError(
                f"the branches share the parameter {shared!r}: a Hadamard layer needs "
                "independently parameterized branches, so build a new module for each"
            )
        self.branches = nn.ModuleList(branches)

    @property
    def outputs(self) -> int:
        """Number of output features (channels), where the branches have ``outputs``."""
        outputs: int = self.branches[0].outputs  # type: ignore[assignment]
        return outputs

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Multiply the branches' outputs."""
        out: Tensor = self.branches[0](*args, **kwargs)
        for i, branch in enumerate(self.branches[1:], start=1):
            factor: Tensor = branch(*args, **kwargs)
            if factor.shape != out.shape:
                raise ValueError(
                    f"branch {i} returned shape {tuple(factor.shape)}, branch 0 "
                    f"{tuple(out.shape)}: all branches must return the same shape"
                )
            out = out * factor
        return out


def _shared_parameter(modules: Sequence[nn.Module]) -> str | None:
    earlier: set[int] = set()
    for module in modules:
        parameters = dict(module.named_parameters())
        for name, parameter in parameters.items():
            if id(parameter) in earlier:
                return name
        earlier.update(map(id, parameters.values()))
    return None


def fuse(branches: Sequence[Branch]) -> nn.Module:
    """Return the fastest module that computes exactly the product of these branches.

    Linear maps and ungrouped 2-d convolutions become one fused layer, if their activation is a
    standard one and their norm a ``BranchNorm`` or none. A branch class may define its own
    ``fuse(branches)``. All other branches become a ``Hadamard``.
    """
    first = branches[0]
    custom: Callable[[Sequence[Branch]], nn.Module] | None = getattr(first, "fuse", None)
    if custom is not None and activation_name(first.activation) is not None:
        return custom(branches)
    fused: type[FusedHadamard] | None = None
    if type(first.affine) is nn.Linear:
        fused = HadamardLinear
    elif type(first.affine) in (nn.Conv2d, Conv2d) and first.affine.groups == 1:
        fused = HadamardConv2d
    if fused is None or activation_name(first.activation) is None:
        return Hadamard(*branches)
    norm = first.norm
    if norm is None or (isinstance(norm, BranchNorm) and norm.feature_dim == fused.feature_dim):
        return fused.from_branches(branches)
    return Hadamard(*branches)


def build(recipe: Recipe) -> nn.Module:
    """Hadamard Representation: the product of two branches."""
    return fuse([recipe.build(), recipe.build()])
