"""The product of branches held in one tensor: prod_i f(pre_i), forward and backward.

One affine map computes all branches, so its output holds their pre-activations, concatenated along
the feature dimension. A GPU kernel (``product_triton``) computes activation and product in CUDA
graphs and for large tensors. Everywhere else the plain form runs; inside ``torch.compile`` too,
which fuses it by itself. Both compute the same function.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from hadamard.compute import kernels
from hadamard.layers.activations import activation_name

FUSED_ACTIVATIONS = frozenset({"relu", "tanh", "elu", "silu", "sigmoid", "gelu", "identity"})
_FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LARGE = 2**24
_compiled_for: set[Any] = set()


def plain_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches, in plain PyTorch."""
    if activation_name(activation) is None:
        # A custom activation may use a whole branch (as softmax does), so each branch gets a call.
        factors = [activation(branch) for branch in pre.chunk(branches, dim)]
    else:
        factors = list(activation(pre).chunk(branches, dim))
    out: Tensor = factors[0]
    for factor in factors[1:]:
        out = out * factor
    return out


def triton_kernels() -> ModuleType | None:
    """Return the module with the GPU kernels, None where they cannot be used."""
    return kernels.load("product_triton")


def kernel_applies(pre: Tensor, name: str | None) -> bool:
    """Say whether the GPU kernel can compute this call.

    Compilers, exporters and function transforms (vmap, forward-mode derivatives) get the plain
    form: they work on PyTorch's operations.
    """
    return (
        pre.is_cuda
        and name in FUSED_ACTIVATIONS
        and pre.dtype in _FUSED_DTYPES
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def branch_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches along ``dim`` (negative), choosing the faster form.

    Launching the kernel takes the host longer than launching the plain operations. So the kernel
    runs where the host does not matter: in a graph capture, and for tensors so large that the
    device takes longer than the host. It cannot be compiled during a capture, so it is compiled
    the first time a shape is seen.
    """
    name = activation_name(activation)
    module = triton_kernels() if kernel_applies(pre, name) else None
    if module is None:
        return plain_product(pre, branches, dim, activation)
    if pre.numel() < _LARGE and not torch.cuda.is_current_stream_capturing():
        key = (pre.shape, pre.stride(), pre.dtype, pre.device, branches, name)
        if key not in _compiled_for:
            module.compile_for(pre, branches, dim, name)
            _compiled_for.add(key)
        return plain_product(pre, branches, dim, activation)
    plain = functools.partial(plain_product, branches=branches, dim=dim, activation=activation)
    out: Tensor = module.BranchProduct.apply(pre, branches, dim, name, plain)
    return out
