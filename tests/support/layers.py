"""The paper's product in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def paper_linear(x: Tensor, state: dict[str, Tensor], f: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute z = f(A1 x + b1) * f(A2 x + b2) from the weights of a state dict."""
    out = torch.ones((), dtype=x.dtype)
    for i in range(sum(key.endswith("affine.weight") for key in state)):
        h = x @ state[f"branches.{i}.affine.weight"].T + state[f"branches.{i}.affine.bias"]
        if f"branches.{i}.norm.weight" in state:
            scale, shift = state[f"branches.{i}.norm.weight"], state[f"branches.{i}.norm.bias"]
            h = (h - h.mean(-1, keepdim=True)) / (
                h.var(-1, unbiased=False, keepdim=True) + 1e-6
            ).sqrt()
            h = h * scale + shift
        out = out * f(h)
    return out
