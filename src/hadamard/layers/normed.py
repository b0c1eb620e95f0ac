"""A whole layer with a norm, as one affine map and one kernel, where it is compiled for a GPU."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from hadamard import kernels
from hadamard.layers.activations import activation_name
from hadamard.layers.conv import Conv2d
from hadamard.layers.norm import BranchNorm
from hadamard.layers.product import FUSED_ACTIVATIONS

_WIDEST = 4096
"""Features of a branch: a row of them has to fit into a processor's registers."""
_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Layer(Protocol):
    """An affine map, its norm and its activation; of one branch or of several in one tensor."""

    affine: nn.Module
    norm: nn.Module | None
    activation: nn.Module


def kernel_can_run() -> bool:
    """Load the kernel, if Triton is here and no function transform differentiates the plain form.

    A compiler takes the answer and does not look inside.
    """
    return (
        not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and kernels.load("hadamard.layers.norm_triton") is not None
    )


# As torch.compiler.assume_constant_result has it, which would import all of the compiler.
kernel_can_run._dynamo_marked_constant = True  # type: ignore[attr-defined]


def kernel_applies(layer: Layer, x: Tensor) -> bool:
    """Say whether one kernel does all that follows the affine map.

    Only where it is compiled: the compiler would make several kernels of it, choosing each one's
    shape by timing it, which does not always end well. Exporters know PyTorch's operations alone.
    """
    affine, norm = layer.affine, layer.norm
    return (
        torch.compiler.is_dynamo_compiling()
        and x.is_cuda
        and kernel_can_run()
        and type(affine) in (nn.Linear, nn.Conv2d, Conv2d)
        and isinstance(norm, BranchNorm)
        and norm.over == "features"
        and norm.branches <= 2
        and norm.width <= _WIDEST
        and activation_name(layer.activation) in FUSED_ACTIVATIONS
        and not any(map(_is_hooked, (affine, norm, layer.activation)))
        and x.dtype == affine.weight.dtype
        and x.dtype in _TYPES
        and not torch.is_autocast_enabled("cuda")
    )


def _is_hooked(part: nn.Module) -> bool:
    """Say whether something else happens when a part is called, as spectral_norm has it."""
    before, after = part._forward_pre_hooks, part._forward_hooks
    return bool(before or after or part._backward_pre_hooks or part._backward_hooks)


def in_one_kernel(layer: Layer, x: Tensor) -> Tensor:
    """Compute a layer to which the kernel, once it is loaded, applies."""
    affine, norm, name = layer.affine, layer.norm, activation_name(layer.activation)
    assert isinstance(affine, nn.Linear | nn.Conv2d)
    assert isinstance(norm, BranchNorm)
    if isinstance(affine, nn.Conv2d):
        pre = affine._conv_forward(x, affine.weight, None)
    else:
        pre = F.linear(x, affine.weight)
    last = pre.movedim(norm.feature_dim, -1)
    rows = last.reshape(-1, last.shape[-1])  # no copy of images whose channels are last in memory
    parameters = affine.bias, norm.weight, norm.bias
    product = torch.ops.hadamard.norm_product
    out: Tensor = product(rows, *parameters, norm.branches, norm.eps, name)
    return out.view(*last.shape[:-1], norm.width).movedim(-1, norm.feature_dim)
