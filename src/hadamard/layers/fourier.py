"""Deep Fourier features: the sine and the cosine of every unit.

One of the two is always near the linear part of its period, so no unit loses its gradient.
Lewandowski, Schuurmans and Machado, "Plastic Learning with Deep Fourier Features", ICLR 2025: the
sine and the cosine in every layer. No code of the authors is known, and no source at hand for the
width: ours is half as many units as outputs (RLE-Foundation/Plasticine doubles the outputs
instead).
"""

import torch
from torch import Tensor, nn

from hadamard.layers.branch import Branch, Recipe


class Fourier(nn.Module):
    """[sin(h), cos(h)] along the features."""

    #: Tells the diagnosis that the output is a hidden representation.
    dormancy_kind = "auto"

    def __init__(self, branch: Branch, feature_dim: int) -> None:
        super().__init__()
        self.branch, self.feature_dim = branch, feature_dim

    @property
    def outputs(self) -> int:
        """Twice the branch's width."""
        return 2 * self.branch.outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the sines and the cosines, concatenated."""
        h = self.branch(x)
        return torch.cat([h.sin(), h.cos()], dim=self.feature_dim)


def build(recipe: Recipe) -> nn.Module:
    """Deep Fourier: the sine and the cosine of half as many units; no other activation."""
    if recipe.outputs % 2:
        raise ValueError(
            f"a layer of Deep Fourier features has a sine and a cosine of each unit, so its width "
            f"must be even, got {recipe.outputs}"
        )
    half = recipe.varied(outputs=recipe.outputs // 2, activation="identity")
    return Fourier(half.build(), recipe.feature_dim)
