"""Hadamax: max-pooled products of convolutions.

A convolution is computed at every position, by two branches with LayerNorm and GELU that are
multiplied; what was its stride is then done by max pooling. A linear layer has LayerNorm and GELU
and no product.

Kooi, Yang and Francois-Lavet, "Hadamax Encoding: Elevating Performance in Model-Free Atari", 2025.
Images keep their size in convolutions and are pooled over windows of the stride, or, without a
stride, of the kernel, and norms are over the channels of each pixel, as in the authors' PQN
(Jacobkooi/Hadamax, purejaxql/networks.py). Ours: weights are drawn as in the algorithm's other
networks (there: Xavier normal, and He normal in the linear layer), and GELU is exact, as in their
C51, where that of their PQN has Flax's approximation by tanh.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.layers.branch import Conv2dBranch, Recipe
from hadamard.layers.hadamard import fuse


class Hadamax(nn.Module):
    """A product of convolutions, pooled."""

    #: Tells the diagnosis that the output is a hidden representation.
    dormancy_kind = "auto"

    def __init__(self, recipe: Conv2dBranch) -> None:
        super().__init__()
        own = recipe.varied(stride=1, padding=0, activation="gelu", norm="layer")
        self.product = fuse([own.build(), own.build()])
        self.kernel, self.stride = _pair(recipe.kernel_size), _pair(recipe.stride)
        self.window = tuple(
            s if s > 1 else k for s, k in zip(self.stride, self.kernel, strict=True)
        )
        self.branch_count: int = getattr(self.product, "branch_count", 1)

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        outputs: int = self.product.outputs  # type: ignore[assignment]
        return outputs

    def size_after(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the height and width of the output for those of the input."""
        return tuple(math.ceil(n / s) for n, s in zip(size, self.stride, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the branches and pool."""
        height, width = x.shape[-2:]
        z = self.product(F.pad(x, _padding((height, width), self.kernel, (1, 1))))
        z = F.pad(z, _padding((height, width), self.window, self.stride), value=-math.inf)
        return F.max_pool2d(z, self.window, self.stride)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _padding(size: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Return what is added left, right, above and below so that a stride covers every pixel."""
    padding = []
    for n, w, s in reversed(list(zip(size, window, stride, strict=True))):
        missing = max(0, (math.ceil(n / s) - 1) * s + w - n)
        padding += [missing // 2, missing - missing // 2]
    return padding


def build(recipe: Recipe) -> nn.Module:
    """Hadamax: convolutions as products with LayerNorm and GELU, max-pooled instead of strided."""
    if isinstance(recipe, Conv2dBranch):
        return Hadamax(recipe)
    return recipe.varied(activation="gelu", norm="layer").build()
