"""Hadamard layers whose branches are computed together: one affine map, one norm, one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from hadamard.layers import norm_kernel
from hadamard.layers.activations import ActivationLike, activation_name
from hadamard.layers.branch import Branch, Conv2dBranch, LinearBranch, check_branch_count
from hadamard.layers.branch_weights import (
    join_modules,
    load_branches,
    save_branches,
    split_module,
)
from hadamard.layers.norm import NormName
from hadamard.layers.product import branch_product
from hadamard.layers.start import Start, apply_start


class FusedHadamard(nn.Module):
    """The product of branches of one kind, computed with one affine map, one norm, one product.

    ``state_dict`` has one entry per branch (``branches.0.affine.weight``), with the same names as
    the unfused ``Hadamard``, so either loads the other's weights. The parameters themselves hold
    all branches: ``affine.weight`` is their weights, concatenated.
    """

    branch_count: int
    feature_dim: int
    affine: nn.Module
    norm: nn.Module | None
    activation: nn.Module

    def _join(self, branches: Sequence[Branch]) -> None:
        """Build the joined affine map and norm from the branches."""
        first = branches[0]
        if any(True for _ in first.activation.parameters()):
            raise ValueError(
                f"{type(first.activation).__name__} has parameters of its own, which the branches "
                "must not share: use Hadamard(branch, branch), each with its own activation"
            )
        self.branch_count = len(branches)
        self.affine = join_modules([branch.affine for branch in branches])
        self.norm = None
        if first.norm is not None:
            self.norm = join_modules(
                [branch.norm for branch in branches if branch.norm is not None]
            )
        self.activation = first.activation
        self.register_state_dict_post_hook(save_branches)
        self.register_load_state_dict_pre_hook(load_branches)

    def _draw(self, branches: Sequence[Branch], start: Start) -> None:
        """Join newly drawn branches, which start as ``start`` says."""
        apply_start(branches, start)
        self._join(branches)

    @classmethod
    def from_branches(cls, branches: Sequence[Branch]) -> Self:
        """Fuse existing branches, keeping their weights."""
        check_branch_count(len(branches))
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._join(branches)
        return layer

    def split(self) -> list[Branch]:
        """Return the branches as separate modules with copies of their weights."""
        norms: Sequence[nn.Module | None] = [None] * self.branch_count
        if self.norm is not None:
            norms = split_module(self.norm, self.branch_count)
        affines = split_module(self.affine, self.branch_count)
        return [Branch(a, n, self.activation) for a, n in zip(affines, norms, strict=True)]

    @property
    def outputs(self) -> int:
        """Number of output features (channels)."""
        return self.affine.get_parameter("weight").shape[0] // self.branch_count

    @property
    def dormancy_kind(self) -> Literal["relu", "tanh", "auto"]:
        """How the diagnosis finds dormant outputs: by exact zeros (ReLU) or by density."""
        name = activation_name(self.activation)
        return "auto" if name is None else "relu" if name == "relu" else "tanh"

    def forward(self, x: Tensor) -> Tensor:
        """Compute all branches together and multiply them."""
        if norm_kernel.applies(self, x):
            return norm_kernel.run(self, x)
        pre = self.affine(x)
        if self.norm is not None:
            pre = self.norm(pre)
        return branch_product(pre, self.branch_count, self.feature_dim, self.activation)

    def extra_repr(self) -> str:
        """Show the number of branches."""
        return f"branches={self.branch_count}, outputs={self.outputs}"


class HadamardLinear(FusedHadamard):
    """Drop-in for ``nn.Linear`` followed by an activation: prod_i f(norm(A_i x + b_i)).

    ``start`` says how the product begins: ``"paper"`` draws all branches alike, ``"scaled"`` and
    ``"near_one"`` keep the signal's scale, see ``hadamard.layers.start``.

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
        start: Start = "paper",
    ) -> None:
        super().__init__()
        check_branch_count(branches)
        recipe = LinearBranch(in_features, out_features, activation, norm, bias, device, dtype)
        self._draw([recipe.build() for _ in range(branches)], start)


class HadamardConv2d(FusedHadamard):
    """Drop-in for ``nn.Conv2d`` followed by an activation.

    ``norm="layer"`` normalizes over the channels at each position, ``"layer_map"`` over the
    whole feature map. ``start`` says how the product begins, as in ``HadamardLinear``.

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
        start: Start = "paper",
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
        self._draw([recipe.build() for _ in range(branches)], start)
