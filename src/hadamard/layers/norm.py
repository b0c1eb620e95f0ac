"""Layer normalization inside branches: of one, or of several held in one tensor."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NormName = Literal["layer", "layer_map"]

EPSILON = 1e-6
"""Added to the variance: the default of flax, which PQN's JAX release uses. PyTorch's is 1e-5.

All algorithms use it, so that it makes no difference between them. Exceptions are MR.Q's encoder
and converted networks, which keep their own.
"""


class BranchNorm(nn.Module):
    """LayerNorm of each branch separately, with a learned scale and shift per feature.

    Without ``affine`` there is no scale and shift: each branch has mean 0 and variance 1.
    ``over="features"`` normalizes over the features (for images: over the channels at each
    position, as in PQN's JAX release). ``over="map"`` normalizes a whole feature map over
    channels, height and width.
    """

    def __init__(
        self,
        width: int,
        *,
        feature_dim: int = -1,
        over: Literal["features", "map"] = "features",
        branches: int = 1,
        eps: float = EPSILON,
        affine: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.width, self.branches, self.feature_dim = width, branches, feature_dim
        self.over, self.eps = over, eps
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if affine:
            self.weight = nn.Parameter(torch.empty(branches * width, device=device, dtype=dtype))
            self.bias = nn.Parameter(torch.empty(branches * width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scale to one and the shift to zero."""
        if self.weight is not None and self.bias is not None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each branch, then scale and shift."""
        weight, bias = self.weight, self.bias
        if self.over == "map":
            height_width = x.shape[self.feature_dim + 1 :]
            split = x.unflatten(self.feature_dim, (self.branches, self.width))
            normalized = F.layer_norm(split, (self.width, *height_width), eps=self.eps).view_as(x)
            if weight is None or bias is None:
                return normalized
            ones = (1,) * len(height_width)
            return normalized * weight.view(-1, *ones) + bias.view(-1, *ones)
        x = x.movedim(self.feature_dim, -1)
        if self.branches == 1:
            normalized = F.layer_norm(x, (self.width,), weight, bias, self.eps)
        else:
            split = x.unflatten(-1, (self.branches, self.width))
            normalized = F.layer_norm(split, (self.width,), eps=self.eps).flatten(-2)
            if weight is not None and bias is not None:
                normalized = normalized * weight + bias
        return normalized.movedim(-1, self.feature_dim)

    def extra_repr(self) -> str:
        """Show the width and the settings."""
        text = f"{self.width}, over={self.over!r}, branches={self.branches}, eps={self.eps}"
        return text if self.weight is not None else f"{text}, affine=False"
