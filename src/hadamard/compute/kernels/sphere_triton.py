"""Adam's step, the projection onto the sphere and the target update in one pass over the weights.

``torch.optim.Adam``, ``on_sphere`` and ``torch._foreach_lerp_`` would read and write the weights
three times. Here one GPU kernel is launched for all tensors. Each program loads some columns of a
weight (a column is the weights of one output, which are normalized together) and keeps them in
registers for all three operations.
"""

# Kernels are written in Triton's own language, which has no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hadamard.compute.sphere import EPSILON

if tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 3):
    raise ImportError(f"kernels take tuples since Triton 3.3, this is {triton.__version__}")


class Tiling(NamedTuple):
    """How tensors are cut into programs."""

    warps: int = 16
    per_read: int = 8
    """Weights that a thread reads at once."""
    registers: int = 32
    """Weights that a thread holds in registers, at most."""
    preloaded: int = 16
    """Weights of a thread whose targets are loaded before the column sums."""
    columns: int = 32
    """Columns of a program, at most."""
    programs: int = 264
    """With fewer programs than this, each takes fewer columns, down to 8 (one memory sector)."""
    tensors: int = 32
    """Tensors in a launch, at most: the kernel contains code for each."""


TILING = Tiling()


@triton.jit
def _unbiased(count, LOG: tl.constexpr):
    # 1 - beta ** count, in double precision as in torch: early on it is a small difference.
    return (1.0 - tl.exp(tl.load(count).to(tl.float64) * LOG)).to(tl.float32)


@triton.jit
def _columns(
    gradient, first, second, weight, target, rate, count, block,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, COPIES: tl.constexpr,
    PROJECT: tl.constexpr, AVERAGE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, AHEAD: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    EPS: tl.constexpr, TAU: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Update all rows of a block of columns, so that their lengths need no other program."""
    parts: tl.constexpr = (HEIGHT + ROWS - 1) // ROWS
    blocks: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    row = tl.arange(0, ROWS)[:, None]
    column = block % blocks * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    matrix = block // blocks
    rate, count = rate + matrix // COPIES, count + matrix // COPIES
    start = matrix.to(tl.int64) * (HEIGHT * WIDTH)
    gradient, first, second = gradient + start, first + start, second + start
    weight, target = weight + start, target + start

    # Entries outside the tensor are zero and stay zero: they add nothing to a length.
    moved = ()
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for i in tl.static_range(parts):
        at = (i * ROWS + row) * WIDTH + column
        inside = (i * ROWS + row < HEIGHT) & (column < WIDTH)
        g = tl.load(gradient + at, mask=inside, other=0.0, eviction_policy="evict_first")
        m = tl.load(first + at, mask=inside, other=0.0, eviction_policy="evict_first")
        v = tl.load(second + at, mask=inside, other=0.0, eviction_policy="evict_first")
        w = tl.load(weight + at, mask=inside, other=0.0)
        if i == 0:  # computed while the first weights load
            size = tl.load(rate).to(tl.float32) / _unbiased(count, LOG_BETA1)
            scale = tl.rsqrt(_unbiased(count, LOG_BETA2))
        m += (1.0 - BETA1) * (g - m)
        v = BETA2 * v + (1.0 - BETA2) * g * g
        w -= size * (m / (tl.sqrt(v) * scale + EPS))
        tl.store(first + at, m, mask=inside, eviction_policy="evict_first")
        tl.store(second + at, v, mask=inside, eviction_policy="evict_first")
        squares += w * w
        moved = moved + (w,)  # noqa: RUF005 (Triton has no unpacking)

    # Load targets before the sum, at which all threads wait, as far as registers suffice.
    old = ()
    if AVERAGE:
        for i in tl.static_range(parts if parts < AHEAD else AHEAD):
            at = (i * ROWS + row) * WIDTH + column
            inside = (i * ROWS + row < HEIGHT) & (column < WIDTH)
            t = tl.load(target + at, mask=inside, other=0.0, eviction_policy="evict_first")
            old = old + (t,)  # noqa: RUF005
    if PROJECT:
        square = tl.sum(squares, 0)
        # Not tl.maximum, which would hide a NaN.
        factor = tl.rsqrt(tl.where(square < SMALLEST, SMALLEST, square))[None, :]
    for i in tl.static_range(parts):
        at = (i * ROWS + row) * WIDTH + column
        inside = (i * ROWS + row < HEIGHT) & (column < WIDTH)
        w = moved[i]
        if PROJECT:
            w *= factor
        tl.store(weight + at, w, mask=inside)
        if AVERAGE:
            if i < AHEAD:
                t = old[i]
            else:
                t = tl.load(target + at, mask=inside, other=0.0, eviction_policy="evict_first")
            t += TAU * (w - t)
            tl.store(target + at, t, mask=inside, eviction_policy="evict_first")


@triton.jit
def _step_kernel(
    gradients, first, second, weights, targets, rate, count,
    SHAPES: tl.constexpr, TILES: tl.constexpr, STARTS: tl.constexpr, PROJECT: tl.constexpr,
    AVERAGE: tl.constexpr, AHEAD: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr,
    LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr, EPS: tl.constexpr, TAU: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    for i in tl.static_range(len(weights)):
        if (program >= STARTS[i]) & (program < STARTS[i + 1]):
            _columns(
                gradients[i], first[i], second[i], weights[i], targets[i],
                rate, count, program - STARTS[i],
                SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], PROJECT[i], AVERAGE,
                TILES[i][0], TILES[i][1],
                AHEAD, BETA1, BETA2, LOG_BETA1, LOG_BETA2, EPS, TAU, SMALLEST,
            )  # fmt: skip


def _matrices(shape: Sequence[int], project: bool, runs: int) -> tuple[int, int, int]:
    """Return the number of matrices in a tensor, their height and their width.

    A tensor that is not projected counts as one long row for each run.
    """
    if not project:
        return runs, 1, math.prod(shape) // runs
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def _tile(height: int, width: int, columns: int, tiling: Tiling) -> tuple[int, int]:
    """Return the rows and columns that a program reads at once."""
    elements = 32 * tiling.warps * tiling.per_read
    columns = min(columns if height > 1 else elements, triton.next_power_of_2(width))
    while True:
        rows = min(max(1, elements // columns), triton.next_power_of_2(height))
        if columns == 1 or height * columns <= tiling.registers * 32 * tiling.warps:
            return rows, columns
        columns //= 2


def plan(
    shapes: Sequence[tuple[int, int, int]], tiling: Tiling
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return each tensor's tile and first program; the last entry is the number of programs."""
    columns = tiling.columns
    while True:
        tiles = [_tile(height, width, columns, tiling) for _, height, width in shapes]
        starts = [0]
        for (copies, _, width), (_, tile_width) in zip(shapes, tiles, strict=True):
            starts.append(starts[-1] + copies * triton.cdiv(width, tile_width))
        if columns <= 8 or starts[-1] >= tiling.programs:
            return tiles, starts
        columns //= 2


def constants(
    shapes: Sequence[Sequence[int]],
    project: Sequence[bool],
    average: bool,
    tiling: Tiling,
    tau: float,
    betas: tuple[float, float],
    eps: float,
    runs: int,
) -> dict[str, Any]:
    """Return the constants that the kernel is compiled with."""
    matrices = [_matrices(shape, on, runs) for shape, on in zip(shapes, project, strict=True)]
    tiles, starts = plan(matrices, tiling)
    return {
        "SHAPES": tuple((*shape[1:], shape[0] // runs) for shape in matrices),
        "TILES": tuple(tiles),
        "STARTS": tuple(starts),
        "PROJECT": tuple(project),
        "AVERAGE": average,
        "AHEAD": tiling.preloaded // tiling.per_read,
        "BETA1": betas[0],
        "BETA2": betas[1],
        "LOG_BETA1": math.log(betas[0]),
        "LOG_BETA2": math.log(betas[1]),
        "EPS": eps,
        "TAU": tau,
        "SMALLEST": EPSILON**2,
    }


def step(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    targets: Sequence[Tensor] | None,
    rate: Tensor,
    count: Tensor,
    tau: float,
    project: Sequence[bool],
    betas: tuple[float, float],
    eps: float,
    tiling: Tiling = TILING,
) -> None:
    """Take Adam's step, project weights onto the sphere, and move targets towards them by ``tau``.

    All in place. ``rate`` and ``count`` are tensors on the weights' device; ``count`` is the number
    of this step, from 1. ``project`` says which weights, (..., inputs, outputs), belong on the
    sphere; the others may have any shape. Rate and count have one element, or one for each of
    several runs, and then the first dimension of every weight is the run.
    """
    updated = [weights, first, second, *([] if targets is None else [targets])]
    if not all(t.is_contiguous() and t.dtype == torch.float32 for part in updated for t in part):
        raise ValueError("weights, moments and targets must be float32 and contiguous")
    lists = [[g.contiguous() for g in gradients], first, second, weights, targets or weights]
    nonempty = [i for i, weight in enumerate(weights) if weight.numel()]
    for begin in range(0, len(nonempty), tiling.tensors):
        group = nonempty[begin : begin + tiling.tensors]
        compiled_for = constants(
            [weights[i].shape for i in group], [project[i] for i in group],
            targets is not None, tiling, tau, betas, eps, rate.numel(),
        )  # fmt: skip
        with torch.cuda.device_of(weights[0]):
            _step_kernel[(compiled_for["STARTS"][-1],)](
                *(tuple(part[i] for i in group) for part in lists),
                rate,
                count,
                **compiled_for,
                num_warps=tiling.warps,
            )
