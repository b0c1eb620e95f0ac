"""What the tensor games share: action numbers, draws, and grids stored as one bit per cell."""

from __future__ import annotations

import torch
from torch import Tensor

State = dict[str, Tensor]

LEFT, UP, RIGHT, DOWN, FIRE = 1, 2, 3, 4, 5
SIDE = 10
ROW = (1 << SIDE) - 1
"""A row of a grid in which every cell is set; cell x is bit x."""


def whole_numbers(value: int, draws: Tensor) -> Tensor:
    """Return the same int32 for each of the games that ``draws`` is for."""
    return torch.full((len(draws),), value, dtype=torch.int32, device=draws.device)


def flags(value: bool, draws: Tensor) -> Tensor:
    """Return the same flag for each of the games that ``draws`` is for."""
    return torch.full((len(draws),), value, dtype=torch.bool, device=draws.device)


def choose(draw: Tensor, options: int | Tensor) -> Tensor:
    """Return int32 choices among 0, ..., options - 1 for uniform numbers in [0, 1).

    The product is below ``options``: a float32 of ``torch.rand`` has at most 24 random bits.
    """
    return (draw * options).int()


def pushed(position: Tensor, action: Tensor, back: int, forth: int, low: int, high: int) -> Tensor:
    """Return a coordinate after the action ``back`` or ``forth``, which stops at the limits."""
    change = (action == forth).int() - (action == back).int()
    return (position + change).clamp(low, high)


def point(y: Tensor | int, x: Tensor) -> Tensor:
    """Return grids, as int32 rows (games, 10), in which the cell (y, x) is set."""
    row = torch.arange(SIDE, dtype=torch.int32, device=x.device)
    in_row = row == (y[:, None] if isinstance(y, Tensor) else y)
    return in_row * (1 << x)[:, None]


def cells(rows: Tensor) -> Tensor:
    """Return the cells of rows (..., 10), as uint8 (..., 10, 10)."""
    cell = 1 << torch.arange(SIDE, dtype=torch.int16, device=rows.device)
    # The largest of a step's tensors: 16 bits a number keep it small.
    return ((rows.to(torch.int16)[..., None] & cell) != 0).to(torch.uint8)


def count_bits(bits: Tensor) -> Tensor:
    """Return how many of the lowest ten bits are set, for int32 without others.

    Examples:
        >>> count_bits(torch.tensor([0, 0b1000000001, 0b1111111111], dtype=torch.int32)).tolist()
        [0, 2, 10]
    """
    pairs = bits - ((bits >> 1) & 0b0101010101)
    fours = (pairs & 0b1100110011) + ((pairs >> 2) & 0b0011001100110011)
    return (fours & 15) + ((fours >> 4) & 15) + (fours >> 8)


def touches(grid: Tensor, other: Tensor) -> Tensor:
    """Return whether two grids of each game have a set cell in common."""
    return ((grid & other) != 0).any(1)
