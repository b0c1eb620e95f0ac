"""Adam's step, the projection onto the sphere and the target update in one pass over the weights.

``torch.optim.Adam``, ``on_sphere`` and ``torch._foreach_lerp_`` would read and write the weights
three times. Here one GPU kernel is launched for many tensors. Each program loads some columns of a
weight (a column is the weights of one output, which are normalized together) and keeps them in
registers for all three operations. Columns that are too long for that are read a second time, most
of them from the cache, because a GPU reads narrow columns slowly.
"""

# Kernels are written in Triton's own language, which has no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
    narrowest: int = 16
    """With fewer columns than this in registers, a program reads more of them twice instead."""
    programs: int = 264
    """With fewer programs than this, each takes fewer columns, down to a memory sector."""
    tensors: int = 32
    """Tensors in a launch, at most: the kernel contains code for each."""
    warps_twice: int = 16
    """Warps of a program that reads its columns twice."""
    per_read_twice: int = 4
    """Weights that a thread of such a program reads at once."""
    columns_twice: int = 32
    """Columns of such a program, at most."""


TILING = Tiling()
_SECTOR = 8
"""Weights in a sector of memory, the least that a GPU reads."""


@triton.jit
def _unbiased(count, LOG: tl.constexpr):
    # 1 - beta ** count, in double precision as in torch: early on it is a small difference.
    return (1.0 - tl.exp(tl.load(count).to(tl.float64) * LOG)).to(tl.float32)


@triton.jit
def _moved(g, m, v, w, size, scale, BETA1: tl.constexpr, BETA2: tl.constexpr, EPS: tl.constexpr):
    """Return the new moments and the weights after Adam's step."""
    m += (1.0 - BETA1) * (g - m)
    v = BETA2 * v + (1.0 - BETA2) * g * g
    w -= size * (m / (tl.sqrt(v) * scale + EPS))
    return m, v, w


@triton.jit
def _factor(squares, SMALLEST: tl.constexpr):
    """Return what scales each column to unit length."""
    square = tl.sum(squares, 0)
    # Not tl.maximum, which would hide a NaN.
    return tl.rsqrt(tl.where(square < SMALLEST, SMALLEST, square))[None, :]


@triton.jit
def _hold_columns(
    gradient, first, second, weight, target, rate, count, column,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PROJECT: tl.constexpr, AVERAGE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, AHEAD: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    EPS: tl.constexpr, TAU: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Update all rows of some columns, with the weights in registers in between."""
    parts: tl.constexpr = (HEIGHT + ROWS - 1) // ROWS
    row = tl.arange(0, ROWS)[:, None]
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
        m, v, w = _moved(g, m, v, w, size, scale, BETA1, BETA2, EPS)
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
        factor = _factor(squares, SMALLEST)
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
def _reread_columns(
    gradient, first, second, weight, target, rate, count, column,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, AVERAGE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    EPS: tl.constexpr, TAU: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Update all rows of some columns, and read the weights a second time for the projection."""
    parts: tl.constexpr = (HEIGHT + ROWS - 1) // ROWS
    row = tl.arange(0, ROWS)[:, None]
    size = tl.load(rate).to(tl.float32) / _unbiased(count, LOG_BETA1)
    scale = tl.rsqrt(_unbiased(count, LOG_BETA2))
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for i in range(parts):
        at = (i * ROWS + row) * WIDTH + column
        inside = (i * ROWS + row < HEIGHT) & (column < WIDTH)
        g = tl.load(gradient + at, mask=inside, other=0.0, eviction_policy="evict_first")
        m = tl.load(first + at, mask=inside, other=0.0, eviction_policy="evict_first")
        v = tl.load(second + at, mask=inside, other=0.0, eviction_policy="evict_first")
        w = tl.load(weight + at, mask=inside, other=0.0)
        m, v, w = _moved(g, m, v, w, size, scale, BETA1, BETA2, EPS)
        tl.store(first + at, m, mask=inside, eviction_policy="evict_first")
        tl.store(second + at, v, mask=inside, eviction_policy="evict_first")
        tl.store(weight + at, w, mask=inside)
        squares += w * w
    factor = _factor(squares, SMALLEST)
    tl.debug_barrier()  # until all threads have written their weights
    for i in range(parts):
        # The rows that were written last are the most likely ones in the cache.
        at = ((parts - 1 - i) * ROWS + row) * WIDTH + column
        inside = ((parts - 1 - i) * ROWS + row < HEIGHT) & (column < WIDTH)
        w = tl.load(weight + at, mask=inside, other=0.0) * factor
        tl.store(weight + at, w, mask=inside)
        if AVERAGE:
            t = tl.load(target + at, mask=inside, other=0.0, eviction_policy="evict_first")
            t += TAU * (w - t)
            tl.store(target + at, t, mask=inside, eviction_policy="evict_first")


@triton.jit
def _step_kernel(
    gradients, first, second, weights, targets, rate, count,
    SHAPES: tl.constexpr, TILES: tl.constexpr, STARTS: tl.constexpr, PROJECT: tl.constexpr,
    HELD: tl.constexpr, AVERAGE: tl.constexpr, AHEAD: tl.constexpr, BETA1: tl.constexpr,
    BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr, EPS: tl.constexpr,
    TAU: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Update all rows of a block of columns, so that their lengths need no other program."""
    program = tl.program_id(0)
    for i in tl.static_range(len(weights)):
        if (program >= STARTS[i]) & (program < STARTS[i + 1]):
            block = program - STARTS[i]
            blocks: tl.constexpr = (SHAPES[i][1] + TILES[i][1] - 1) // TILES[i][1]
            column = block % blocks * TILES[i][1] + tl.arange(0, TILES[i][1])[None, :]
            matrix = block // blocks
            run = matrix // SHAPES[i][2]
            start = matrix.to(tl.int64) * (SHAPES[i][0] * SHAPES[i][1])
            if HELD:
                _hold_columns(
                    gradients[i] + start, first[i] + start, second[i] + start, weights[i] + start,
                    targets[i] + start, rate + run, count + run, column,
                    SHAPES[i][0], SHAPES[i][1], PROJECT[i], AVERAGE, TILES[i][0], TILES[i][1],
                    AHEAD, BETA1, BETA2, LOG_BETA1, LOG_BETA2, EPS, TAU, SMALLEST,
                )  # fmt: skip
            else:
                _reread_columns(
                    gradients[i] + start, first[i] + start, second[i] + start, weights[i] + start,
                    targets[i] + start, rate + run, count + run, column,
                    SHAPES[i][0], SHAPES[i][1], AVERAGE, TILES[i][0], TILES[i][1],
                    BETA1, BETA2, LOG_BETA1, LOG_BETA2, EPS, TAU, SMALLEST,
                )  # fmt: skip


def _matrices(shape: Sequence[int], project: bool, runs: int) -> tuple[int, int, int]:
    """Return the number of matrices in a tensor, their height and their width.

    A tensor that is not projected counts as one long row for each run.
    """
    if not project:
        return runs, 1, math.prod(shape) // runs
    return math.prod(shape[:-2]), shape[-2], shape[-1]


class Tile(NamedTuple):
    """What a program reads at once of its columns."""

    rows: int
    columns: int
    held: bool
    """Whether its columns stay in registers."""


def _tile(shape: tuple[int, int, int], columns: int, tiling: Tiling) -> Tile:
    """Return the tile for matrices of a shape, of at most so many columns."""
    copies, height, width = shape
    widest = triton.next_power_of_2(width)
    elements = 32 * tiling.warps * tiling.per_read
    held = min(columns if height > 1 else elements, widest)
    while height * held > tiling.registers * 32 * tiling.warps and held > min(_SECTOR, widest):
        held //= 2
    fits = height * held <= tiling.registers * 32 * tiling.warps
    if fits and held >= min(tiling.narrowest, widest):
        return Tile(_rows(elements // held, height), held, True)
    reread = min(tiling.columns_twice, widest)
    while reread > _SECTOR and copies * triton.cdiv(width, reread) < tiling.programs:
        reread //= 2
    if fits and reread <= held:
        return Tile(_rows(elements // held, height), held, True)
    elements = 32 * tiling.warps_twice * tiling.per_read_twice
    return Tile(_rows(elements // reread, height), reread, False)


def _rows(most: int, height: int) -> int:
    """Return how many rows are read at once: not many more than there are."""
    fit: int = triton.next_power_of_2(height)
    return min(max(1, most), fit)


def plan(
    shapes: Mapping[int, tuple[int, int, int]], tiling: Tiling
) -> tuple[dict[int, Tile], dict[int, int]]:
    """Return each tensor's tile, and its number of programs."""
    columns = tiling.columns
    while True:
        tiles = {i: _tile(shape, columns, tiling) for i, shape in shapes.items()}
        programs = {
            i: copies * triton.cdiv(width, tiles[i].columns)
            for i, (copies, _, width) in shapes.items()
        }
        if columns <= _SECTOR or sum(programs.values()) >= tiling.programs:
            return tiles, programs
        columns //= 2


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
    runs = rate.numel()
    shapes = {i: _matrices(weights[i].shape, project[i], runs) for i in nonempty}
    tiles, programs = plan(shapes, tiling)
    for held in (True, False):
        alike = [i for i in nonempty if tiles[i].held == held]
        for begin in range(0, len(alike), tiling.tensors):
            group = alike[begin : begin + tiling.tensors]
            starts = [0, *itertools.accumulate(programs[i] for i in group)]
            with torch.cuda.device_of(weights[0]):
                _step_kernel[(starts[-1],)](
                    *(tuple(part[i] for i in group) for part in lists),
                    rate,
                    count,
                    SHAPES=tuple((*shapes[i][1:], shapes[i][0] // runs) for i in group),
                    TILES=tuple((tiles[i].rows, tiles[i].columns) for i in group),
                    STARTS=tuple(starts),
                    PROJECT=tuple(project[i] for i in group),
                    HELD=held,
                    AVERAGE=targets is not None,
                    AHEAD=tiling.preloaded // tiling.per_read,
                    BETA1=betas[0],
                    BETA2=betas[1],
                    LOG_BETA1=math.log(betas[0]),
                    LOG_BETA2=math.log(betas[1]),
                    EPS=eps,
                    TAU=tau,
                    SMALLEST=EPSILON**2,
                    num_warps=tiling.warps if held else tiling.warps_twice,
                )
