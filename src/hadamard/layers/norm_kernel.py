"""GPU kernel for norm, activation and product of a layer, used in compiled code."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from hadamard.compute import kernels
from hadamard.layers.activations import activation_name
from hadamard.layers.conv import Conv2d
from hadamard.layers.norm import BranchNorm
from hadamard.layers.product import FUSED_ACTIVATIONS

_MAX_WIDTH = 4096
"""Features of a branch: a row of them has to fit into a processor's registers."""
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Layer(Protocol):
    """An affine map, its norm and its activation, of one branch or of several in one tensor."""

    affine: nn.Module
    norm: nn.Module | None
    activation: nn.Module


def available() -> bool:
    """Load the kernel; False without Triton and inside function transforms (vmap, jvp).

    Function transforms need the plain form, because they differentiate it themselves.
    """
    return (
        not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and kernels.load("norm_triton") is not None
    )


# torch.compile evaluates this function once, while compiling, and does not trace it. The attribute
# is what torch.compiler.assume_constant_result sets; calling that would import the whole compiler.
available._dynamo_marked_constant = True  # type: ignore[attr-defined]


def applies(layer: Layer, x: Tensor) -> bool:
    """Say whether the kernel can compute all that follows the layer's affine map.

    It is used in compiled code only. There it replaces several kernels that the compiler would
    generate, whose shapes it chooses by timing and sometimes chooses badly. Exporters need the
    plain form, because they know PyTorch's operations only.
    """
    affine, norm = layer.affine, layer.norm
    return (
        torch.compiler.is_dynamo_compiling()
        and x.is_cuda
        and available()
        and type(affine) in (nn.Linear, nn.Conv2d, Conv2d)
        and isinstance(norm, BranchNorm)
        and norm.over == "features"
        and norm.branches <= 2
        and norm.width <= _MAX_WIDTH
        and activation_name(layer.activation) in FUSED_ACTIVATIONS
        and not any(map(_has_hooks, (affine, norm, layer.activation)))
        and x.dtype == affine.weight.dtype
        and x.dtype in _DTYPES
        and not torch.is_autocast_enabled("cuda")
    )


def _has_hooks(module: nn.Module) -> bool:
    """Say whether calling a module does more than its forward, as with spectral_norm."""
    before, after = module._forward_pre_hooks, module._forward_hooks
    return bool(before or after or module._backward_pre_hooks or module._backward_hooks)


def run(layer: Layer, x: Tensor) -> Tensor:
    """Compute a layer with the kernel, which must be available and apply to it."""
    affine, norm, name = layer.affine, layer.norm, activation_name(layer.activation)
    assert isinstance(affine, nn.Linear | nn.Conv2d)
    assert isinstance(norm, BranchNorm)
    if isinstance(affine, nn.Conv2d):
        pre = affine._conv_forward(x, affine.weight, None)
    else:
        pre = F.linear(x, affine.weight)
    features_last = pre.movedim(norm.feature_dim, -1)
    # For images in channels-last memory format, this reshape copies nothing.
    rows = features_last.reshape(-1, features_last.shape[-1])
    parameters = affine.bias, norm.weight, norm.bias
    norm_product = torch.ops.hadamard.norm_product
    out: Tensor = norm_product(rows, *parameters, norm.branches, norm.eps, name)
    return out.view(*features_last.shape[:-1], norm.width).movedim(-1, norm.feature_dim)
