"""Grids whose cells hold things that wait: a cell is six bits, one for each move timer from 0 to 5.

A row is an int64; cell x begins at bit 6 x. What has no timer uses a cell's first bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hadamard.envs.minatar_tensors._grid import SIDE

BITS = 6
CELL = (1 << BITS) - 1
"""All bits of the first cell; its product with first bits has all bits of their cells."""
FIRST_BITS = sum(1 << BITS * x for x in range(SIDE))


def _runs(length: int) -> int:
    """Return a row in which a run of bits begins where every ``length``-th cell begins."""
    return sum((1 << length) - 1 << BITS * x for x in range(0, SIDE, length))


_GATHERING = [((BITS - 1) * length, _runs(2 * length)) for length in (1, 2, 4, 8)]


def point(y: Tensor, x: Tensor) -> Tensor:
    """Return grids (..., 10) in which the first bit of the cell (y, x) is set; none if y is -1."""
    row = torch.arange(SIDE, device=x.device)
    return (row == y[..., None]) * (1 << (BITS * x.long()))[..., None]


def leftmost(count: Tensor) -> Tensor:
    """Return rows in which the first bits of that many cells are set, from the left.

    Examples:
        >>> leftmost(torch.tensor([0, 2])).tolist()
        [0, 65]
    """
    return ((1 << (BITS * count.long())) - 1) & FIRST_BITS


def directions(device: torch.device) -> Tensor:
    """Return, as ``moved`` needs it for grids (games, 2, 10), that the first of them go left."""
    return (torch.arange(2, device=device) == 1)[:, None]


def by_direction(grid: Tensor, to_right: Tensor) -> Tensor:
    """Return grids (games, 2, 10): what goes left, and what goes right."""
    return torch.stack([grid * ~to_right, grid * to_right], dim=1)


def merged(grids: Tensor) -> Tensor:
    """Return what is set in either of two grids (games, 2, 10)."""
    return grids[:, 0] | grids[:, 1]


def moved(grid: Tensor, to_right: Tensor) -> Tensor:
    """Return first bits moved by one cell; those that leave the grid are shifted out.

    Examples:
        >>> moved(torch.tensor([1, 1, 1 << 54]), torch.tensor([True, False, True])).tolist()
        [64, 0, 0]
    """
    return grid << (2 * BITS * to_right) >> BITS


def waiting(grid: Tensor) -> Tensor:
    """Return what does not move yet, with its timers reduced by one."""
    return (grid & ~FIRST_BITS) >> 1


def occupied(grid: Tensor) -> Tensor:
    """Return the first bit of every cell in which a bit is set.

    Examples:
        >>> occupied(torch.tensor([0b100000_000000_010010])).tolist() == [1 + (1 << 12)]
        True
    """
    some = grid | grid >> 1
    return (some | some >> 2 | some >> 4) & FIRST_BITS


def lowest(grid: Tensor) -> Tensor:
    """Return, of each cell, the lowest bit that is set.

    Examples:
        >>> lowest(torch.tensor([0b110000_000000_000110])).tolist() == [0b010000_000000_000010]
        True
    """
    # As in v & -v; empty cells are not negated, so nothing is carried into the next.
    return grid & (~grid + occupied(grid))


def count(grid: Tensor) -> Tensor:
    """Return how many first bits are set in each game's grid.

    Examples:
        >>> count(torch.tensor([[1 << 54, 0], [1 + (1 << 6), 1 << 12]])).tolist()
        [1, 3]
    """
    # 64 is 1 modulo 63.
    return (grid % CELL).sum(1)


def dense(grid: Tensor) -> Tensor:
    """Return first bits side by side: grids of ``_grid``, in which cell x is bit x.

    Examples:
        >>> dense(torch.tensor([1 + (1 << 12) + (1 << 54)])).tolist() == [0b1000000101]
        True
    """
    for shift, runs in _GATHERING:
        grid = (grid | grid >> shift) & runs
    return grid
