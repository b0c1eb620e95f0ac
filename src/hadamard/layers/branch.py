"""A branch (affine map -> norm -> activation), which every layer variant is built from.

A variant receives a *recipe* (``LinearBranch``, ``Conv2dBranch``), which builds ``Branch`` modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor, nn

from hadamard.layers import norm_kernel
from hadamard.layers.activations import ActivationLike, make_activation
from hadamard.layers.conv import Conv2d
from hadamard.layers.norm import EPSILON, BranchNorm, NormName


def check_branch_count(branches: int) -> None:
    """Raise an error for fewer than two branches."""
    if isinstance(branches, bool) or not isinstance(branches, int):
        raise TypeError(f"branches must be an integer, got {type(branches).__name__}: {branches}")
    if branches < 2:
        raise ValueError(f"a Hadamard layer multiplies at least 2 branches, got {branches}")


class Branch(nn.Module):
    """An affine map, an optional norm and an activation."""

    def __init__(self, affine: nn.Module, norm: nn.Module | None, activation: nn.Module) -> None:
        super().__init__()
        self.affine, self.norm, self.activation = affine, norm, activation

    @property
    def outputs(self) -> int:
        """Number of output features (channels)."""
        outputs: int | None = getattr(self.affine, "outputs", None)
        return outputs or self.affine.get_parameter("weight").shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Return activation(norm(affine(x)))."""
        if norm_kernel.applies(self, x):
            return norm_kernel.run(self, x)
        h = self.affine(x)
        if self.norm is not None:
            h = self.norm(h)
        out: Tensor = self.activation(h)
        return out


class Recipe(Protocol):
    """What a layer variant needs from a branch's recipe, whatever its affine map is.

    Implementing this makes another kind of affine map (a hyperspherical one, for example) work in
    every variant.
    """

    @property
    def inputs(self) -> int:
        """Number of input features (channels)."""

    @property
    def outputs(self) -> int:
        """Number of output features (channels)."""

    @property
    def feature_dim(self) -> int:
        """The dimension that holds the features, counted from the end."""

    def build(self) -> Branch:
        """Build one branch with new random weights."""

    def varied(self, **changes: Any) -> Self:
        """Return the recipe with some fields changed."""

    def following(self) -> Self:
        """Return the recipe of a next layer that keeps shape and width."""


@dataclass(frozen=True)
class _Recipe(ABC):
    inputs: int
    outputs: int
    activation: ActivationLike = "tanh"
    norm: NormName | None = None
    bias: bool = True
    device: Any = None
    dtype: torch.dtype | None = None
    affine_norm: bool = True
    """Whether the norm learns a scale and a shift."""
    norm_epsilon: float = EPSILON
    """Added to the variance by the norm."""

    feature_dim: ClassVar[int] = -1
    norms: ClassVar[dict[str, Literal["features", "map"]]] = {"layer": "features"}

    def __post_init__(self) -> None:
        for field in ("inputs", "outputs"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{field} must be an integer, got {type(value).__name__}: {value}")
            if value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        if self.norm is not None and self.norm not in self.norms:
            names = ", ".join(["None", *map(repr, self.norms)])
            raise ValueError(f"norm must be one of {names} here, got {self.norm!r}")

    @abstractmethod
    def affine(self) -> nn.Module:
        """Build the affine map with new random weights."""

    def build(self) -> Branch:
        """Build one branch with new random weights."""
        norm = None
        if self.norm is not None:
            norm = BranchNorm(
                self.outputs,
                feature_dim=self.feature_dim,
                over=self.norms[self.norm],
                eps=self.norm_epsilon,
                affine=self.affine_norm,
                device=self.device,
                dtype=self.dtype,
            )
        return Branch(self.affine(), norm, make_activation(self.activation))

    def varied(self, **changes: Any) -> Self:
        """Return the recipe with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class LinearBranch(_Recipe):
    """The recipe of a branch on ``nn.Linear``.

    Examples:
        >>> LinearBranch(8, 4, activation="relu").build()(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    def affine(self) -> nn.Module:
        """Build the linear map."""
        return nn.Linear(
            self.inputs, self.outputs, bias=self.bias, device=self.device, dtype=self.dtype
        )

    def following(self) -> Self:
        """Return the recipe of a next layer that keeps the width."""
        return self.varied(inputs=self.outputs)


@dataclass(frozen=True)
class Conv2dBranch(_Recipe):
    """The recipe of a branch on a 2-d convolution, whose features are its channels."""

    kernel_size: int | tuple[int, int] = 3
    stride: int | tuple[int, int] = 1
    padding: int | tuple[int, int] | Literal["same", "valid"] = 0
    dilation: int | tuple[int, int] = 1
    groups: int = 1
    padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros"

    feature_dim: ClassVar[int] = -3
    norms: ClassVar[dict[str, Literal["features", "map"]]] = {
        "layer": "features",
        "layer_map": "map",
    }

    def affine(self) -> nn.Module:
        """Build the convolution."""
        return Conv2d(
            self.inputs,
            self.outputs,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            bias=self.bias,
            padding_mode=self.padding_mode,
            device=self.device,
            dtype=self.dtype,
        )

    def following(self) -> Self:
        """Return the recipe of a next convolution that keeps shape and width."""
        return self.varied(inputs=self.outputs, stride=1, padding="same")
