"""The product of branches held in one tensor: prod_i f(pre_i), forward and backward.

One affine map computes all branches at once, so its output holds them one after another along
the feature dimension. On a GPU, activation and product are one kernel each way (see
``product_triton``); everywhere else, and inside ``torch.compile`` (which fuses the plain form
itself), the plain form below runs. Both compute the same function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn

from hadamard.layers.activations import Function, activation_name


def plain_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches, in plain PyTorch."""
    if activation_name(activation) is None or isinstance(activation, Function):
        # An arbitrary callable may look at a whole branch (a softmax does): one at a time.
        parts = [activation(part) for part in pre.chunk(branches, dim)]
    else:
        parts = list(activation(pre).chunk(branches, dim))
    out: Tensor = parts[0]
    for part in parts[1:]:
        out = out * part
    return out


@functools.cache
def triton_kernels() -> ModuleType | None:
    """Return the module with the GPU kernels, None where Triton is not installed."""
    try:
        from hadamard.layers import product_triton
    except ImportError:
        return None
    return product_triton


def fused_product_applies(pre: Tensor, activation: nn.Module) -> bool:
    """Say whether the GPU kernel can take this call."""
    if not pre.is_cuda or pre.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False  # the compiler fuses the plain form itself, and exporters know its operations
    kernels = triton_kernels()
    return kernels is not None and activation_name(activation) in kernels.FUSED_ACTIVATIONS


def branch_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches along ``dim`` (negative) by the fastest way there is."""
    if not fused_product_applies(pre, activation):
        return plain_product(pre, branches, dim, activation)
    product: Callable[..., Tensor] = triton_kernels().branch_product  # type: ignore[union-attr]
    return product(pre, branches, dim, activation)
