"""The Hadamard Representation: the product of independently parameterised branches.

z = f(A1 x + b1) * f(A2 x + b2). ``Hadamard`` multiplies modules of any kind;
``HadamardLinear`` and ``HadamardConv2d`` compute the same thing with one matrix
product (one convolution) for all branches and, in CUDA graphs, one kernel for activation and
product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from hadamard.layers import normed
from hadamard.layers.activations import ActivationLike, activation_name
from hadamard.layers.branch import Branch, Conv2dBranch, LinearBranch, Recipe
from hadamard.layers.conv import Conv2d
from hadamard.layers.joined import join, join_named_branches, name_branches, split
from hadamard.layers.norm import BranchNorm, NormName
from hadamard.layers.product import branch_product


def check_branch_count(branches: int) -> None:
    """Refuse fewer than two branches."""
    if isinstance(branches, bool) or not isinstance(branches, int):
        raise TypeError(f"branches must be an integer, got {type(branches).__name__}: {branches}")
    if branches < 2:
        raise ValueError(f"a Hadamard layer multiplies at least 2 branches, got {branches}")


class Hadamard(nn.Module):
    """Elementwise product of two or more modules that see the same input.

    Examples:
        >>> layer = Hadamard(nn.Sequential(nn.Linear(3, 4), nn.Tanh()),
        ...                  nn.Sequential(nn.Linear(3, 4), nn.Sigmoid()))
        >>> layer(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    #: Tells the diagnosis that the output is a hidden representation, and how to judge it.
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
                "independently parameterised branches, so build a new module for each"
            )
        self.branches = nn.ModuleList(branches)

    @property
    def outputs(self) -> int:
        """Features (channels) handed on, where the branches can tell."""
        outputs: int = self.branches[0].outputs  # type: ignore[assignment]
        return outputs

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Multiply what the branches make of the input."""
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
    seen: set[int] = set()
    for module in modules:
        own = dict(module.named_parameters())
        for name, parameter in own.items():
            if id(parameter) in seen:
                return name
        seen.update(map(id, own.values()))
    return None


class FusedHadamard(nn.Module):
    """Branches of one kind, computed together: one affine map, one norm, one product.

    ``state_dict`` names the branches (``branches.0.affine.weight``), exactly as the unfused
    product of the same branches does, so either loads the other's weights. The parameters
    themselves are joined (``affine.weight`` holds the branches one after another), as the
    projections of ``nn.MultiheadAttention`` are.
    """

    branch_count: int
    feature_dim: int
    affine: nn.Module
    norm: nn.Module | None
    activation: nn.Module

    def _join(self, branches: Sequence[Branch]) -> None:
        """Take over the branches' weights."""
        first = branches[0]
        if any(True for _ in first.activation.parameters()):
            raise ValueError(
                f"{type(first.activation).__name__} has parameters of its own, and branches must "
                "not share any: use Hadamard(branch, branch) with an activation in each"
            )
        self.branch_count = len(branches)
        self.affine = join([branch.affine for branch in branches])
        self.norm = None
        if first.norm is not None:
            self.norm = join([branch.norm for branch in branches if branch.norm is not None])
        self.activation = first.activation
        self.register_state_dict_post_hook(name_branches)
        self.register_load_state_dict_pre_hook(join_named_branches)

    @classmethod
    def from_branches(cls, branches: Sequence[Branch]) -> Self:
        """Fuse existing branches, keeping their weights."""
        check_branch_count(len(branches))
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._join(branches)
        return layer

    def split(self) -> list[Branch]:
        """Return the branches as separate modules with weights of their own."""
        norms: Sequence[nn.Module | None] = [None] * self.branch_count
        if self.norm is not None:
            norms = split(self.norm, self.branch_count)
        affines = split(self.affine, self.branch_count)
        return [Branch(a, n, self.activation) for a, n in zip(affines, norms, strict=True)]

    @property
    def outputs(self) -> int:
        """Features (channels) handed on."""
        return self.affine.get_parameter("weight").shape[0] // self.branch_count

    @property
    def dormancy_kind(self) -> Literal["relu", "tanh", "auto"]:
        """How the diagnosis judges the product: by exact zeros (ReLU) or by density."""
        name = activation_name(self.activation)
        return "auto" if name is None else "relu" if name == "relu" else "tanh"

    def forward(self, x: Tensor) -> Tensor:
        """Compute all branches at once and multiply them."""
        if normed.kernel_applies(self, x):
            return normed.in_one_kernel(self, x)
        pre = self.affine(x)
        if self.norm is not None:
            pre = self.norm(pre)
        return branch_product(pre, self.branch_count, self.feature_dim, self.activation)

    def extra_repr(self) -> str:
        """Show the number of branches."""
        return f"branches={self.branch_count}, outputs={self.outputs}"


class HadamardLinear(FusedHadamard):
    """Drop-in for ``nn.Linear`` followed by an activation: prod_i f(norm(A_i x + b_i)).

    Examples:
        >>> HadamardLinear(8, 4)(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    feature_dim = -1

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: ActivationLike = "tanh",
        norm: NormName | None = None,
        branches: int = 2,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_branch_count(branches)
        recipe = LinearBranch(in_features, out_features, activation, norm, bias, device, dtype)
        self._join([recipe.build() for _ in range(branches)])


class HadamardConv2d(FusedHadamard):
    """Drop-in for ``nn.Conv2d`` followed by an activation.

    ``norm="layer"`` normalises over the channels at each position, ``"layer_map"`` over the
    whole feature map.

    Examples:
        >>> HadamardConv2d(4, 32, 8, stride=4)(torch.zeros(2, 4, 84, 84)).shape
        torch.Size([2, 32, 20, 20])
    """

    feature_dim = -3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | Literal["same", "valid"] = 0,
        dilation: int | tuple[int, int] = 1,
        activation: ActivationLike = "tanh",
        norm: NormName | None = None,
        branches: int = 2,
        bias: bool = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_branch_count(branches)
        recipe = Conv2dBranch(
            in_channels,
            out_channels,
            activation,
            norm,
            bias,
            device,
            dtype,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            padding_mode=padding_mode,
        )
        self._join([recipe.build() for _ in range(branches)])


def fuse(branches: Sequence[Branch]) -> nn.Module:
    """Multiply the branches in the fastest form that computes exactly them.

    Linear and ungrouped 2-d convolutions with no norm or a ``BranchNorm``, and one
    activation without parameters, become one fused layer; a branch of another kind may bring a
    ``fuse`` of its own; anything else becomes a ``Hadamard``.
    """
    first = branches[0]
    own: Callable[[Sequence[Branch]], nn.Module] | None = getattr(first, "fuse", None)
    if own is not None and activation_name(first.activation) is not None:
        return own(branches)
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
