"""Activation and product in one GPU kernel each way.

The kernel reads the pre-activations of all branches once and writes the product once; the
backward pass reads them again instead of keeping the activations. Arithmetic is float32
whatever the storage type, so bf16 results are rounded once, not once per factor.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from triton.language.extra import libdevice

from hadamard.layers.activations import activation_name
from hadamard.layers.product import plain_product

FUSED_ACTIVATIONS = frozenset({"relu", "tanh", "elu", "silu", "sigmoid", "gelu", "identity"})
BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _activate(x, ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    if ACT == "relu":
        # Not a maximum: that would hide a NaN which the plain form passes on.
        return tl.where(x <= 0.0, 0.0, x)
    elif ACT == "tanh":
        return libdevice.tanh(x)
    elif ACT == "elu":
        return tl.where(x > 0.0, x, libdevice.expm1(x))
    elif ACT == "silu":
        return x * tl.sigmoid(x)
    elif ACT == "sigmoid":
        return tl.sigmoid(x)
    elif ACT == "gelu":
        return 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))
    else:
        return x


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _derivative(x, ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    if ACT == "relu":
        return tl.where(x > 0.0, 1.0, 0.0)
    elif ACT == "tanh":
        t = libdevice.tanh(x)
        return 1.0 - t * t
    elif ACT == "elu":
        return tl.where(x > 0.0, 1.0, tl.exp(x))
    elif ACT == "silu":
        s = tl.sigmoid(x)
        return s * (1.0 + x * (1.0 - s))
    elif ACT == "sigmoid":
        s = tl.sigmoid(x)
        return s * (1.0 - s)
    elif ACT == "gelu":
        normal_cdf = 0.5 * (1.0 + libdevice.erf(x * 0.7071067811865476))
        return normal_cdf + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    else:
        return tl.full(x.shape, 1.0, tl.float32)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _forward_kernel(  # type: ignore[no-untyped-def]
    pre, out, total, inner, BRANCHES: tl.constexpr, ACT: tl.constexpr, BLOCK: tl.constexpr
):
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < total
    first = (offset // inner) * (BRANCHES * inner) + offset % inner
    product = tl.full((BLOCK,), 1.0, tl.float32)
    for i in tl.static_range(BRANCHES):
        x = tl.load(pre + first + i * inner, mask=inside, other=0.0).to(tl.float32)
        product *= _activate(x, ACT)
    tl.store(out + offset, product.to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _backward_kernel(  # type: ignore[no-untyped-def]
    pre, grad, grad_pre, total, inner,
    BRANCHES: tl.constexpr, ACT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < total
    first = (offset // inner) * (BRANCHES * inner) + offset % inner
    upstream = tl.load(grad + offset, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(BRANCHES):
        x = tl.load(pre + first + i * inner, mask=inside, other=0.0).to(tl.float32)
        slope = upstream * _derivative(x, ACT)
        for j in tl.static_range(BRANCHES):
            if j != i:
                other = tl.load(pre + first + j * inner, mask=inside, other=0.0).to(tl.float32)
                slope *= _activate(other, ACT)
        tl.store(grad_pre + first + i * inner, slope.to(grad_pre.dtype.element_ty), mask=inside)


def _layout(pre: Tensor, branches: int, dim: int) -> tuple[Tensor, int, bool]:
    """Return the tensor as stored, how many elements one branch has in a row, and whether
    channels come last in memory."""
    width = pre.shape[dim] // branches
    images = pre.dim() == 4 and dim == -3 and not pre.is_contiguous()
    if images and pre.is_contiguous(memory_format=torch.channels_last):
        return pre, width, True
    pre = pre.contiguous()
    inner = width
    for size in pre.shape[pre.dim() + dim + 1 :]:
        inner *= size
    return pre, inner, False


def _empty_product(pre: Tensor, branches: int, dim: int, channels_last: bool) -> Tensor:
    shape = list(pre.shape)
    shape[dim] //= branches
    memory = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=pre.dtype, device=pre.device, memory_format=memory)


class _BranchProduct(torch.autograd.Function):
    @staticmethod
    def forward(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
        pre, inner, channels_last = _layout(pre, branches, dim)
        out = _empty_product(pre, branches, dim, channels_last)
        total = out.numel()
        if total:
            with torch.cuda.device(pre.device):
                _forward_kernel[(triton.cdiv(total, BLOCK),)](
                    pre, out, total, inner,
                    BRANCHES=branches, ACT=activation_name(activation), BLOCK=BLOCK,
                )  # fmt: skip
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        pre, ctx.branches, ctx.dim, ctx.activation = inputs
        ctx.save_for_backward(pre)
        ctx.save_for_forward(pre)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        (pre,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A second derivative was asked for: differentiate the plain form instead.
            out = plain_product(pre, ctx.branches, ctx.dim, ctx.activation)
            (slope,) = torch.autograd.grad(out, pre, grad, create_graph=True)
            return slope, None, None, None
        stored, inner, channels_last = _layout(pre, ctx.branches, ctx.dim)
        memory = torch.channels_last if channels_last else torch.contiguous_format
        grad = grad.contiguous(memory_format=memory)
        grad_pre = torch.empty_like(stored)
        total = grad.numel()
        if total:
            with torch.cuda.device(pre.device):
                _backward_kernel[(triton.cdiv(total, BLOCK),)](
                    stored, grad, grad_pre, total, inner,
                    BRANCHES=ctx.branches, ACT=activation_name(ctx.activation), BLOCK=BLOCK,
                )  # fmt: skip
        return grad_pre, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (pre,) = ctx.saved_tensors
        slopes: tuple[Tensor, ...] = torch.func.jvp(
            lambda x: plain_product(x, ctx.branches, ctx.dim, ctx.activation), (pre,), (tangent,)
        )
        return slopes[1]

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[int | None, ...], pre: Tensor, *settings: Any
    ) -> tuple[Tensor, int]:
        # The feature dimension is counted from the end: one more dimension in front is free.
        assert in_dims[0] is not None
        return _BranchProduct.apply(pre.movedim(in_dims[0], 0), *settings), 0


def branch_product(pre: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Multiply the activated branches along ``dim`` (negative) in one kernel."""
    out: Tensor = _BranchProduct.apply(pre, branches, dim, activation)
    return out
