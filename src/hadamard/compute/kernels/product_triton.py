"""GPU kernels for activation and product: one for the forward pass, one for the backward pass.

The forward kernel reads the pre-activations of all branches once and writes the product once. The
backward kernel reads the pre-activations again, so the activations are not stored. Arithmetic is
float32 for every storage type, so bf16 results are rounded once, not once per factor.
"""

# Triton kernels have no type annotations.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice


@triton.jit
def activate(x, ACT: tl.constexpr):
    """f(x)."""
    if ACT == "relu":
        # A maximum would replace NaN by 0, and the plain form keeps NaN.
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


@triton.jit
def slope_of(x, y, ACT: tl.constexpr):
    """f'(x), computed from y = f(x) where that is faster."""
    if ACT == "relu":
        return tl.where(x > 0.0, 1.0, 0.0)
    elif ACT == "tanh":
        return 1.0 - y * y
    elif ACT == "elu":
        return tl.where(x > 0.0, 1.0, y + 1.0)
    elif ACT == "silu":
        s = tl.sigmoid(x)
        return s * (1.0 + x * (1.0 - s))
    elif ACT == "sigmoid":
        return y * (1.0 - y)
    elif ACT == "gelu":
        normal_cdf = 0.5 * (1.0 + libdevice.erf(x * 0.7071067811865476))
        return normal_cdf + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    else:
        return tl.full(x.shape, 1.0, tl.float32)


@triton.jit
def _tile(rows, inner, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row, column, (row < rows) & (column < inner)


@triton.jit
def _forward_kernel(
    pre, out, rows, inner,
    BRANCHES: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column, inside = _tile(rows, inner, ROWS, COLUMNS)
    first = pre + row * (BRANCHES * inner) + column
    product = tl.full((ROWS, COLUMNS), 1.0, tl.float32)
    for i in tl.static_range(BRANCHES):
        x = tl.load(first + i * inner, mask=inside, other=0.0).to(tl.float32)
        product *= activate(x, ACT)
    tl.store(out + row * inner + column, product.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(
    pre, grad, grad_pre, rows, inner,
    BRANCHES: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column, inside = _tile(rows, inner, ROWS, COLUMNS)
    first = row * (BRANCHES * inner) + column
    upstream = tl.load(grad + row * inner + column, mask=inside, other=0.0).to(tl.float32)
    if BRANCHES == 2:
        x = tl.load(pre + first, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(pre + first + inner, mask=inside, other=0.0).to(tl.float32)
        fx, fy = activate(x, ACT), activate(y, ACT)
        to_x = (upstream * fy * slope_of(x, fx, ACT)).to(grad_pre.dtype.element_ty)
        to_y = (upstream * fx * slope_of(y, fy, ACT)).to(grad_pre.dtype.element_ty)
        tl.store(grad_pre + first, to_x, mask=inside)
        tl.store(grad_pre + first + inner, to_y, mask=inside)
    else:
        for i in tl.static_range(BRANCHES):
            x = tl.load(pre + first + i * inner, mask=inside, other=0.0).to(tl.float32)
            slope = upstream * slope_of(x, activate(x, ACT), ACT)
            for j in tl.static_range(BRANCHES):
                if j != i:
                    y = tl.load(pre + first + j * inner, mask=inside, other=0.0).to(tl.float32)
                    slope *= activate(y, ACT)
            target = grad_pre + first + i * inner
            tl.store(target, slope.to(grad_pre.dtype.element_ty), mask=inside)


def _tiling(rows: int, inner: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the grid and the tile, which is small enough to occupy every multiprocessor."""
    elements, warps = (256, 8) if rows * inner < 2**18 else (512, 4)
    columns = min(triton.next_power_of_2(inner), elements)
    height = elements // columns
    grid = (triton.cdiv(rows, height), triton.cdiv(inner, columns))
    return grid, {"ROWS": height, "COLUMNS": columns, "num_warps": warps}


def _layout(pre: Tensor, branches: int, dim: int) -> tuple[Tensor, int, torch.memory_format]:
    """Return the tensor as stored, the number of elements of a branch in a row, and the format.

    For linear layers a row holds the features. For images it holds channels x height x width, or
    the channels alone in channels-last memory format.
    """
    width = pre.shape[dim] // branches
    images = pre.dim() == 4 and dim == -3 and not pre.is_contiguous()
    if images and pre.is_contiguous(memory_format=torch.channels_last):
        return pre, width, torch.channels_last
    pre = pre.contiguous()
    return pre, width * math.prod(pre.shape[pre.dim() + dim + 1 :]), torch.contiguous_format


def _product(pre: Tensor, branches: int, dim: int, name: str) -> Tensor:
    pre, inner, memory = _layout(pre, branches, dim)
    shape = list(pre.shape)
    shape[dim] //= branches
    out = torch.empty(shape, dtype=pre.dtype, device=pre.device, memory_format=memory)
    if out.numel():
        rows = out.numel() // inner
        grid, tile = _tiling(rows, inner)
        with torch.cuda.device_of(pre):
            _forward_kernel[grid](pre, out, rows, inner, BRANCHES=branches, ACT=name, **tile)
    return out


def _gradient(pre: Tensor, grad: Tensor, branches: int, dim: int, name: str) -> Tensor:
    pre, inner, memory = _layout(pre, branches, dim)
    grad = grad.contiguous(memory_format=memory)
    grad_pre = torch.empty_like(pre)
    if grad.numel():
        rows = grad.numel() // inner
        grid, tile = _tiling(rows, inner)
        with torch.cuda.device_of(pre):
            _backward_kernel[grid](
                pre, grad, grad_pre, rows, inner, BRANCHES=branches, ACT=name, **tile
            )
    return grad_pre


@torch.no_grad()
def compile_for(pre: Tensor, branches: int, dim: int, name: str) -> None:
    """Compile and load both kernels for tensors of this shape and dtype, by running them once."""
    pre = pre.detach()
    _gradient(pre, _product(pre, branches, dim, name), branches, dim, name)


class BranchProduct(torch.autograd.Function):
    """The product as one differentiable operation; ``plain`` computes it in plain PyTorch."""

    @staticmethod
    def forward(
        ctx: Any, pre: Tensor, branches: int, dim: int, name: str, plain: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Multiply the activated branches."""
        ctx.save_for_backward(pre)
        ctx.settings = branches, dim, name, plain
        return _product(pre, branches, dim, name)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the pre-activations."""
        (pre,) = ctx.saved_tensors
        branches, dim, name, plain = ctx.settings
        if torch.is_grad_enabled():
            # For second derivatives, which the kernel does not have.
            (slope,) = torch.autograd.grad(plain(pre), pre, grad, create_graph=True)
            return slope, None, None, None, None
        return _gradient(pre, grad, branches, dim, name), None, None, None, None
