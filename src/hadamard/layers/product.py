"""The product of branches held in one tensor: prod_i f(pre_i), forward and backward.

One affine map computes all branches at once, so its output holds them one after another along
the feature dimension. In CUDA graphs and on large tensors, activation and product are one kernel
each way (see ``product_triton``); everywhere else, and inside ``torch.compile`` (which fuses the
plain form itself), the plain form below runs. Both compute the same function.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from hadamard import kernels
from hadamard.layers.activations import activation_name

FUSED_ACTIVATIONS = frozenset({"relu", "tanh", "elu", "silu", "sigmoid", "gelu", "identity"})
_FUSED_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_LARGE = 2**24
_compiled: set[Any] = set()


def plain_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches, in plain PyTorch."""
    if activation_name(activation) is None:
        # An arbitrary callable may look at a whole branch (a softmax does): one at a time.
        parts = [activation(part) for part in pre.chunk(branches, dim)]
    else:
        parts = list(activation(pre).chunk(branches, dim))
    out: Tensor = parts[0]
    for part in parts[1:]:
        out = out * part
    return out


def triton_kernels() -> ModuleType | None:
    """Return the module with the GPU kernels, if they can be used here."""
    return kernels.load("hadamard.layers.product_triton")


def kernel_applies(pre: Tensor, name: str | None) -> bool:
    """Say whether the GPU kernel can take this call.

    The compiler fuses the plain form itself, exporters know its operations, and function
    transforms (vmap, forward-mode derivatives) differentiate it as they need.
    """
    return (
        pre.is_cuda
        and name in FUSED_ACTIVATIONS
        and pre.dtype in _FUSED_TYPES
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def branch_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches along ``dim`` (negative) by the fastest way there is.

    Launching the kernel costs the host more than the plain operations do, which matters unless
    a graph is being captured (the host is out of the picture) or the tensor is large (the device
    is the one that takes long). A kernel is compiled the first time its shape is seen, since
    that cannot be done during a capture.
    """
    name = activation_name(activation)
    fused = triton_kernels() if kernel_applies(pre, name) else None
    if fused is None:
        return plain_product(pre, branches, dim, activation)
    if pre.numel() < _LARGE and not torch.cuda.is_current_stream_capturing():
        key = (pre.shape, pre.stride(), pre.dtype, pre.device, branches, name)
        if key not in _compiled:
            fused.compile_for(pre, branches, dim, name)
            _compiled.add(key)
        return plain_product(pre, branches, dim, activation)
    out: Tensor = fused.BranchProduct.apply(pre, branches, dim, activation, name)
    return out
