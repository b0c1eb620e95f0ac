"""GPU kernels for bias, layer norm, activation and product of one or two branches.

A row holds the pre-activations of one position, branch after branch, without the affine map's bias.
It is read once and kept in registers. The backward kernel computes the norm again, so it is not
stored, and also sums the gradients of bias, scale and shift. Arithmetic is float64 for float64, and
float32 for every other storage type.
"""

# Triton kernels have no type annotations.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hadamard.compute.kernels.product_triton import activate, slope_of

_TILE = 512
"""Numbers of one branch that a program processes together: twice as many for the gradient of many
rows."""
_PROGRAMS = 528
"""Programs of the backward kernel that share the rows: four per processor of a large GPU."""


@triton.jit
def _parameter(source, column, inside, GIVEN: tl.constexpr, OTHERWISE: tl.constexpr):
    if GIVEN:
        value = tl.load(source + column, mask=inside, other=0.0)
        return value.to(tl.float64) if value.dtype == tl.float64 else value.to(tl.float32)
    else:
        return OTHERWISE


@triton.jit
def _activated(x, ACT: tl.constexpr):
    """f(x) of a normalized x, with tanh computed from one exponential.

    ``activate`` is also accurate relative to very small results, which takes three times the
    instructions. A normalized x only needs a small absolute error.
    """
    if ACT == "tanh":
        return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))
    else:
        return activate(x, ACT)


@triton.jit
def _inside(row, rows, in_row, FULL: tl.constexpr):
    """Mask of the tile's entries inside the tensor; with FULL the compiler knows it is all true."""
    inside = (row < rows) & in_row
    if FULL:
        inside = tl.full(inside.shape, True, tl.int1)
    return inside


@triton.jit
def _normalized(
    pre, offset, row, column, inside, BRANCH: tl.constexpr, BRANCHES: tl.constexpr,
    WIDTH: tl.constexpr, OFFSET: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """A branch's rows with mean 0 and variance 1, and the factor that gave them variance 1."""
    x = tl.load(pre + row * (BRANCHES * WIDTH) + BRANCH * WIDTH + column, mask=inside, other=0.0)
    x = x.to(tl.float64) if x.dtype == tl.float64 else x.to(tl.float32)
    x += _parameter(offset, BRANCH * WIDTH + column, column < WIDTH, OFFSET, 0.0)
    x = tl.where(inside, x, 0.0)
    centered = tl.where(inside, x - tl.sum(x, 1, keep_dims=True) / WIDTH, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(centered * centered, 1, keep_dims=True) / WIDTH + EPS)
    return centered * factor, factor


@triton.jit
def _forward_kernel(
    pre, offset, scale, shift, out, rows,
    BRANCHES: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr, SCALED: tl.constexpr,
    EPS: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    FULL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    in_row = column < WIDTH
    inside = _inside(row, rows, in_row, FULL)
    x, _ = _normalized(pre, offset, row, column, inside, 0, BRANCHES, WIDTH, OFFSET, EPS)
    x = x * _parameter(scale, column, in_row, SCALED, 1.0)
    product = _activated(x + _parameter(shift, column, in_row, SCALED, 0.0), ACT)
    if BRANCHES == 2:
        column_y = WIDTH + column
        y, _ = _normalized(pre, offset, row, column, inside, 1, BRANCHES, WIDTH, OFFSET, EPS)
        y = y * _parameter(scale, column_y, in_row, SCALED, 1.0)
        product *= _activated(y + _parameter(shift, column_y, in_row, SCALED, 0.0), ACT)
    tl.store(out + row * WIDTH + column, product.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _to_pre(slope, normalized, factor, WIDTH: tl.constexpr):
    """Turn the gradient of the normalized rows into the gradient of the rows before the norm."""
    mean = tl.sum(slope, 1, keep_dims=True) / WIDTH
    along = tl.sum(slope * normalized, 1, keep_dims=True) / WIDTH
    return factor * (slope - mean - normalized * along)


@triton.jit
def _backward_kernel(
    pre, offset, scale, shift, grad, grad_pre, sums, rows, tiles,
    BRANCHES: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr, SCALED: tl.constexpr,
    EPS: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    FULL: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, COLUMNS)[None, :]
    in_row, column_y = column < WIDTH, WIDTH + column
    scale_x = _parameter(scale, column, in_row, SCALED, 1.0)
    shift_x = _parameter(shift, column, in_row, SCALED, 0.0)
    if BRANCHES == 2:
        scale_y = _parameter(scale, column_y, in_row, SCALED, 1.0)
        shift_y = _parameter(shift, column_y, in_row, SCALED, 0.0)
    kind: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    offset_x = tl.zeros((ROWS, COLUMNS), kind)
    scales_x = tl.zeros((ROWS, COLUMNS), kind)
    shifts_x = tl.zeros((ROWS, COLUMNS), kind)
    offset_y = tl.zeros((ROWS, COLUMNS), kind)
    scales_y = tl.zeros((ROWS, COLUMNS), kind)
    shifts_y = tl.zeros((ROWS, COLUMNS), kind)
    first_tile = program.to(tl.int64) * tiles
    for tile in range(first_tile, tl.minimum(first_tile + tiles, tl.cdiv(rows, ROWS))):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        inside = _inside(row, rows, in_row, FULL)
        upstream = tl.load(grad + row * WIDTH + column, mask=inside, other=0.0).to(kind)
        first = grad_pre + row * (BRANCHES * WIDTH) + column
        normalized_x, factor_x = _normalized(
            pre, offset, row, column, inside, 0, BRANCHES, WIDTH, OFFSET, EPS
        )
        x = normalized_x * scale_x + shift_x
        fx = _activated(x, ACT)
        to_x = upstream * slope_of(x, fx, ACT)
        if BRANCHES == 2:
            normalized_y, factor_y = _normalized(
                pre, offset, row, column, inside, 1, BRANCHES, WIDTH, OFFSET, EPS
            )
            y = normalized_y * scale_y + shift_y
            fy = _activated(y, ACT)
            to_y = upstream * fx * slope_of(y, fy, ACT)
            to_x *= fy
            shifts_y += to_y
            scales_y += to_y * normalized_y
            to_y = tl.where(inside, _to_pre(to_y * scale_y, normalized_y, factor_y, WIDTH), 0.0)
            offset_y += to_y
            tl.store(first + WIDTH, to_y.to(grad_pre.dtype.element_ty), mask=inside)
        shifts_x += to_x
        scales_x += to_x * normalized_x
        to_x = tl.where(inside, _to_pre(to_x * scale_x, normalized_x, factor_x, WIDTH), 0.0)
        offset_x += to_x
        tl.store(first, to_x.to(grad_pre.dtype.element_ty), mask=inside)
    target = sums + program.to(tl.int64) * (3 * BRANCHES * WIDTH) + column
    tl.store(target, tl.sum(offset_x, 0, keep_dims=True), mask=in_row)
    tl.store(target + BRANCHES * WIDTH, tl.sum(scales_x, 0, keep_dims=True), mask=in_row)
    tl.store(target + 2 * BRANCHES * WIDTH, tl.sum(shifts_x, 0, keep_dims=True), mask=in_row)
    if BRANCHES == 2:
        target += WIDTH
        tl.store(target, tl.sum(offset_y, 0, keep_dims=True), mask=in_row)
        tl.store(target + BRANCHES * WIDTH, tl.sum(scales_y, 0, keep_dims=True), mask=in_row)
        tl.store(target + 2 * BRANCHES * WIDTH, tl.sum(shifts_y, 0, keep_dims=True), mask=in_row)


@triton.jit
def _sum_kernel(
    sums, out, count, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOUBLE: tl.constexpr
):  # fmt: skip
    """Sum over rows. PyTorch's sum uses few threads for a long and narrow table."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float64 if DOUBLE else tl.float32)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < count) & (column < columns)
        total += tl.load(sums + row * columns + column, mask=inside, other=0.0)
    summed = tl.sum(total, 0, keep_dims=True).to(out.dtype.element_ty)
    tl.store(out + column, summed, mask=column < columns)


def _constants(
    pre: Tensor,
    offset: Tensor | None,
    scale: Tensor | None,
    branches: int,
    eps: float,
    act: str,
    tile: int = _TILE,
) -> dict[str, Any]:
    """Return the constants that both kernels are compiled with."""
    width = pre.shape[1] // branches
    columns = triton.next_power_of_2(width)
    tile_rows = max(1, tile // columns)
    return {
        "BRANCHES": branches,
        "WIDTH": width,
        "OFFSET": offset is not None,
        "SCALED": scale is not None,
        "EPS": eps,
        "ACT": act,
        "ROWS": tile_rows,
        "COLUMNS": columns,
        "FULL": columns == width and len(pre) % tile_rows == 0,
        "num_warps": max(4, columns // 256),
    }


@torch.library.custom_op(
    "hadamard::norm_product",
    mutates_args=(),
    schema="(Tensor pre, Tensor? offset, Tensor? scale, Tensor? shift, int branches, float eps, "
    "str act) -> Tensor",
)
def norm_product(
    pre: Tensor,
    offset: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    branches: int,
    eps: float,
    act: str,
) -> Tensor:
    """Return prod_i f(scale_i * normalized(pre_i + offset_i) + shift_i), row by row."""
    out: Tensor = _empty(pre, offset, scale, shift, branches, eps, act)
    if out.numel():
        constants = _constants(pre, offset, scale, branches, eps, act)
        with torch.cuda.device_of(pre):
            _forward_kernel[(triton.cdiv(len(pre), constants["ROWS"]),)](
                pre.contiguous(), offset, scale, shift, out, len(pre), **constants
            )
    return out


@norm_product.register_fake
def _empty(pre: Tensor, *other_arguments: Any) -> Tensor:
    *_, branches, _eps, _act = other_arguments
    return pre.new_empty(pre.shape[0], pre.shape[1] // branches)


@torch.library.custom_op(
    "hadamard::norm_product_gradient",
    mutates_args=(),
    schema="(Tensor grad, Tensor pre, Tensor? offset, Tensor? scale, Tensor? shift, int branches, "
    "float eps, str act) -> (Tensor, Tensor)",
)
def norm_product_gradient(
    grad: Tensor,
    pre: Tensor,
    offset: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    branches: int,
    eps: float,
    act: str,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of ``pre``, and one with rows for offset, scale and shift."""
    to_pre, to_parameters = _empty_gradient(grad, pre)
    if len(pre) == 0:
        return to_pre, to_parameters.zero_()
    tile = 2 * _TILE if to_pre.numel() > _TILE * _PROGRAMS else _TILE
    constants = _constants(pre, offset, scale, branches, eps, act, tile)
    tiles = triton.cdiv(len(pre), constants["ROWS"])
    tiles_per_program = triton.cdiv(tiles, _PROGRAMS)
    programs, double = triton.cdiv(tiles, tiles_per_program), pre.dtype == torch.float64
    dtype = torch.float64 if double else torch.float32
    sums = torch.empty((programs, to_parameters.numel()), dtype=dtype, device=pre.device)
    inputs = pre.contiguous(), offset, scale, shift, grad.contiguous()
    with torch.cuda.device_of(pre):
        _backward_kernel[(programs,)](
            *inputs, to_pre, sums, len(pre), tiles_per_program, DOUBLE=double, **constants
        )
        _sum_kernel[(triton.cdiv(sums.shape[1], 4),)](
            sums, to_parameters, *sums.shape, ROWS=256, COLUMNS=4, DOUBLE=double
        )
    return to_pre, to_parameters


@norm_product_gradient.register_fake
def _empty_gradient(grad: Tensor, pre: Tensor, *other_arguments: Any) -> tuple[Tensor, Tensor]:
    del grad, other_arguments
    to_pre = torch.empty_like(pre, memory_format=torch.contiguous_format)
    return to_pre, pre.new_empty(3, pre.shape[1])


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[:4])
    ctx.settings = inputs[4:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    to_pre, to_parameters = norm_product_gradient(grad, *saved, *ctx.settings)
    parameters = (None if p is None else to_parameters[i] for i, p in enumerate(saved[1:]))
    return to_pre, *parameters, None, None, None


norm_product.register_autograd(_backward, setup_context=_save_inputs)
