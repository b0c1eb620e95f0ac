"""Bias, layer norm, activation and product of one or two branches in one GPU kernel each way.

A row holds the pre-activations of one position, branch after branch, without the affine map's bias.
It is read once and kept in registers; the backward pass computes the norm again instead of keeping
it, and sums the gradients of bias, scale and shift on its way. Arithmetic is float32 whatever the
storage type, and float64 for float64.
"""

# Kernels are written in Triton's own language, which has no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hadamard.layers.product_triton import activate, slope_of

_TILE = 512
"""Numbers of one branch that a program works on at once; for a gradient twice as many, where rows
are many enough."""
_PROGRAMS = 528
"""Programs that share the rows of a gradient: four for each of a large GPU's processors."""


@triton.jit
def _parameter(source, column, inside, GIVEN: tl.constexpr, OTHERWISE: tl.constexpr):
    if GIVEN:
        found = tl.load(source + column, mask=inside, other=0.0)
        return found.to(tl.float64) if found.dtype == tl.float64 else found.to(tl.float32)
    else:
        return OTHERWISE


@triton.jit
def _activated(x, ACT: tl.constexpr):
    """f(x) of a normalised x, whose absolute error counts: tanh by one exponential.

    ``activate`` keeps the digits of the smallest numbers too, at three times the instructions.
    """
    if ACT == "tanh":
        return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))
    else:
        return activate(x, ACT)


@triton.jit
def _where_inside(row, rows, real, FULL: tl.constexpr):
    """Say which numbers of a tile there are; all of them, as the compiler then knows, if FULL."""
    inside = (row < rows) & real
    if FULL:
        inside = tl.full(inside.shape, True, tl.int1)
    return inside


@triton.jit
def _normal(
    pre, offset, row, column, inside, BRANCH: tl.constexpr, BRANCHES: tl.constexpr,
    WIDTH: tl.constexpr, OFFSET: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """A branch's rows with mean 0 and variance 1, and what they were multiplied by for that."""
    x = tl.load(pre + row * (BRANCHES * WIDTH) + BRANCH * WIDTH + column, mask=inside, other=0.0)
    x = x.to(tl.float64) if x.dtype == tl.float64 else x.to(tl.float32)
    x += _parameter(offset, BRANCH * WIDTH + column, column < WIDTH, OFFSET, 0.0)
    x = tl.where(inside, x, 0.0)
    centred = tl.where(inside, x - tl.sum(x, 1, keep_dims=True) / WIDTH, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(centred * centred, 1, keep_dims=True) / WIDTH + EPS)
    return centred * factor, factor


@triton.jit
def _forward_kernel(
    pre, offset, scale, shift, out, rows,
    BRANCHES: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr, SCALED: tl.constexpr,
    EPS: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    FULL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    real = column < WIDTH
    inside = _where_inside(row, rows, real, FULL)
    x, _ = _normal(pre, offset, row, column, inside, 0, BRANCHES, WIDTH, OFFSET, EPS)
    x = x * _parameter(scale, column, real, SCALED, 1.0)
    product = _activated(x + _parameter(shift, column, real, SCALED, 0.0), ACT)
    if BRANCHES == 2:
        beside = WIDTH + column
        y, _ = _normal(pre, offset, row, column, inside, 1, BRANCHES, WIDTH, OFFSET, EPS)
        y = y * _parameter(scale, beside, real, SCALED, 1.0)
        product *= _activated(y + _parameter(shift, beside, real, SCALED, 0.0), ACT)
    tl.store(out + row * WIDTH + column, product.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _to_pre(slope, normal, factor, WIDTH: tl.constexpr):
    """From the gradient of normalised rows to that of the rows before."""
    mean = tl.sum(slope, 1, keep_dims=True) / WIDTH
    along = tl.sum(slope * normal, 1, keep_dims=True) / WIDTH
    return factor * (slope - mean - normal * along)


@triton.jit
def _backward_kernel(
    pre, offset, scale, shift, grad, grad_pre, sums, rows, tiles,
    BRANCHES: tl.constexpr, WIDTH: tl.constexpr, OFFSET: tl.constexpr, SCALED: tl.constexpr,
    EPS: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    FULL: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, COLUMNS)[None, :]
    real, beside = column < WIDTH, WIDTH + column
    scale_x = _parameter(scale, column, real, SCALED, 1.0)
    shift_x = _parameter(shift, column, real, SCALED, 0.0)
    if BRANCHES == 2:
        scale_y = _parameter(scale, beside, real, SCALED, 1.0)
        shift_y = _parameter(shift, beside, real, SCALED, 0.0)
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
        inside = _where_inside(row, rows, real, FULL)
        upstream = tl.load(grad + row * WIDTH + column, mask=inside, other=0.0).to(kind)
        first = grad_pre + row * (BRANCHES * WIDTH) + column
        normal_x, factor_x = _normal(
            pre, offset, row, column, inside, 0, BRANCHES, WIDTH, OFFSET, EPS
        )
        x = normal_x * scale_x + shift_x
        fx = _activated(x, ACT)
        to_x = upstream * slope_of(x, fx, ACT)
        if BRANCHES == 2:
            normal_y, factor_y = _normal(
                pre, offset, row, column, inside, 1, BRANCHES, WIDTH, OFFSET, EPS
            )
            y = normal_y * scale_y + shift_y
            fy = _activated(y, ACT)
            to_y = upstream * fx * slope_of(y, fy, ACT)
            to_x *= fy
            shifts_y += to_y
            scales_y += to_y * normal_y
            to_y = tl.where(inside, _to_pre(to_y * scale_y, normal_y, factor_y, WIDTH), 0.0)
            offset_y += to_y
            tl.store(first + WIDTH, to_y.to(grad_pre.dtype.element_ty), mask=inside)
        shifts_x += to_x
        scales_x += to_x * normal_x
        to_x = tl.where(inside, _to_pre(to_x * scale_x, normal_x, factor_x, WIDTH), 0.0)
        offset_x += to_x
        tl.store(first, to_x.to(grad_pre.dtype.element_ty), mask=inside)
    own = sums + program.to(tl.int64) * (3 * BRANCHES * WIDTH) + column
    tl.store(own, tl.sum(offset_x, 0, keep_dims=True), mask=real)
    tl.store(own + BRANCHES * WIDTH, tl.sum(scales_x, 0, keep_dims=True), mask=real)
    tl.store(own + 2 * BRANCHES * WIDTH, tl.sum(shifts_x, 0, keep_dims=True), mask=real)
    if BRANCHES == 2:
        own += WIDTH
        tl.store(own, tl.sum(offset_y, 0, keep_dims=True), mask=real)
        tl.store(own + BRANCHES * WIDTH, tl.sum(scales_y, 0, keep_dims=True), mask=real)
        tl.store(own + 2 * BRANCHES * WIDTH, tl.sum(shifts_y, 0, keep_dims=True), mask=real)


@triton.jit
def _sum_kernel(
    sums, out, count, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOUBLE: tl.constexpr
):  # fmt: skip
    """Add the rows up: PyTorch would give a long and narrow table to few threads."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float64 if DOUBLE else tl.float32)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < count) & (column < columns)
        total += tl.load(sums + row * columns + column, mask=inside, other=0.0)
    whole = tl.sum(total, 0, keep_dims=True).to(out.dtype.element_ty)
    tl.store(out + column, whole, mask=column < columns)


def _settings(
    pre: Tensor,
    offset: Tensor | None,
    scale: Tensor | None,
    branches: int,
    eps: float,
    act: str,
    tile: int = _TILE,
) -> dict[str, Any]:
    """Return what both kernels are compiled for."""
    width = pre.shape[1] // branches
    columns = triton.next_power_of_2(width)
    at_once = max(1, tile // columns)
    return {
        "BRANCHES": branches,
        "WIDTH": width,
        "OFFSET": offset is not None,
        "SCALED": scale is not None,
        "EPS": eps,
        "ACT": act,
        "ROWS": at_once,
        "COLUMNS": columns,
        "FULL": columns == width and len(pre) % at_once == 0,
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
    """Return prod_i f(scale_i * normal(pre_i + offset_i) + shift_i), row by row."""
    out: Tensor = _empty(pre, offset, scale, shift, branches, eps, act)
    if out.numel():
        told = _settings(pre, offset, scale, branches, eps, act)
        with torch.cuda.device_of(pre):
            _forward_kernel[(triton.cdiv(len(pre), told["ROWS"]),)](
                pre.contiguous(), offset, scale, shift, out, len(pre), **told
            )
    return out


@norm_product.register_fake
def _empty(pre: Tensor, *told: Any) -> Tensor:
    *_, branches, _eps, _act = told
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
    """Return the gradients of ``pre``, and of offset, scale and shift one below the other."""
    to_pre, to_parameters = _empty_gradient(grad, pre)
    if len(pre) == 0:
        return to_pre, to_parameters.zero_()
    tile = 2 * _TILE if to_pre.numel() > _TILE * _PROGRAMS else _TILE
    told = _settings(pre, offset, scale, branches, eps, act, tile)
    count = triton.cdiv(len(pre), told["ROWS"])
    each = triton.cdiv(count, _PROGRAMS)
    programs, double = triton.cdiv(count, each), pre.dtype == torch.float64
    kind = torch.float64 if double else torch.float32
    sums = torch.empty((programs, to_parameters.numel()), dtype=kind, device=pre.device)
    given = pre.contiguous(), offset, scale, shift, grad.contiguous()
    with torch.cuda.device_of(pre):
        _backward_kernel[(programs,)](*given, to_pre, sums, len(pre), each, DOUBLE=double, **told)
        _sum_kernel[(triton.cdiv(sums.shape[1], 4),)](
            sums, to_parameters, *sums.shape, ROWS=256, COLUMNS=4, DOUBLE=double
        )
    return to_pre, to_parameters


@norm_product_gradient.register_fake
def _empty_gradient(grad: Tensor, pre: Tensor, *told: Any) -> tuple[Tensor, Tensor]:
    del grad, told
    like_rows = torch.empty_like(pre, memory_format=torch.contiguous_format)
    return like_rows, pre.new_empty(3, pre.shape[1])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[:4])
    ctx.settings = inputs[4:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    given = ctx.saved_tensors
    to_pre, found = norm_product_gradient(grad, *given, *ctx.settings)
    parameters = (None if p is None else found[i] for i, p in enumerate(given[1:]))
    return to_pre, *parameters, None, None, None


norm_product.register_autograd(_backward, setup_context=_remember)
