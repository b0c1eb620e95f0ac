"""Breakout: a paddle keeps a ball in play, which breaks three rows of bricks.

The ball moves diagonally. A brick is broken only if the ball struck none in the step before;
otherwise the ball passes through it. The bricks are 30 bits: cell (y, x) is bit 10 (y - 1) + x.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.envs.minatar_tensors._grid import (
    LEFT,
    RIGHT,
    ROW,
    SIDE,
    State,
    cells,
    choose,
    flags,
    point,
    pushed,
    whole_numbers,
)

ACTIONS = (0, 1, 3)
CHANNELS = 4
DRAWS = 1
"""The side on which the ball starts."""

_BRICKS = 3 * SIDE
_ALL_BRICKS = (1 << _BRICKS) - 1
_BOTTOM = 9


def new(draws: Tensor, *, ramping: bool = False) -> State:
    """Start games: the ball falls from the left or the right wall."""
    del ramping
    side = choose(draws[:, 0], 2)
    ball_x = 9 * side
    ball_y = whole_numbers(3, draws)
    return {
        "paddle": whole_numbers(4, draws),
        "ball_x": ball_x,
        "ball_y": ball_y,
        "last_x": ball_x.clone(),
        "last_y": ball_y.clone(),
        "to_right": side == 0,
        "down": flags(True, draws),
        "struck": flags(False, draws),
        "bricks": whole_numbers(_ALL_BRICKS, draws),
    }


def step(
    state: State, action: Tensor, draws: Tensor, *, ramping: bool = False
) -> tuple[State, Tensor, Tensor]:
    """Play one step."""
    del draws, ramping
    old_x, old_y, bricks = state["ball_x"], state["ball_y"], state["bricks"]
    paddle = pushed(state["paddle"], action, LEFT, RIGHT, 0, 9)
    x = old_x + 2 * state["to_right"].int() - 1
    y = old_y + 2 * state["down"].int() - 1
    at_wall = (x < 0) | (x > 9)
    at_ceiling = y < 0
    x, y = x.clamp(0, 9), y.clamp(min=0)

    number = SIDE * (y - 1) + x
    bit = 1 << number.clamp(0, _BRICKS - 1)
    at_brick = (number >= 0) & (number < _BRICKS) & ((bricks & bit) != 0)
    broken = at_brick & ~state["struck"]
    bricks = bricks & ~(bit * broken)

    at_bottom = y == _BOTTOM
    bricks = bricks | (at_bottom & (bricks == 0)).int() * _ALL_BRICKS
    above_paddle = at_bottom & (old_x == paddle)
    on_corner = at_bottom & ~above_paddle & (x == paddle)
    returned = broken | above_paddle | on_corner
    after = {
        "paddle": paddle,
        "ball_x": x,
        "ball_y": torch.where(returned, old_y, y),
        "last_x": old_x,
        "last_y": old_y,
        "to_right": state["to_right"] ^ at_wall ^ on_corner,
        "down": state["down"] ^ (at_ceiling | returned),
        "struck": at_brick,
        "bricks": bricks,
    }
    return after, broken.float(), at_bottom & ~above_paddle & ~on_corner


def observe(state: State) -> Tensor:
    """Return the paddle, the ball, its last place and the bricks."""
    bricks = state["bricks"][:, None]
    row = torch.arange(SIDE, dtype=torch.int32, device=bricks.device)
    has_bricks = (row >= 1) & (row <= 3)
    # A clamp of ``arange`` inside ``stack`` is more than torch.compile can handle.
    shift = torch.where(has_bricks, SIDE * (row - 1), 0)
    planes = (
        point(_BOTTOM, state["paddle"]),
        point(state["ball_y"], state["ball_x"]),
        point(state["last_y"], state["last_x"]),
        ((bricks >> shift) & ROW) * has_bricks,
    )
    return cells(torch.stack(planes, dim=1))


def from_package(game: Any) -> dict[str, Any]:
    """Return a game of the package as one row of a state."""
    bricks = np.flatnonzero(game.brick_map[1:4]).tolist()
    return {
        "paddle": np.int32(game.pos),
        "ball_x": np.int32(game.ball_x),
        "ball_y": np.int32(game.ball_y),
        "last_x": np.int32(game.last_x),
        "last_y": np.int32(game.last_y),
        "to_right": np.bool_(game.ball_dir in (1, 2)),
        "down": np.bool_(game.ball_dir in (2, 3)),
        "struck": np.bool_(game.strike),
        "bricks": np.int32(sum(1 << brick for brick in bricks)),
    }
