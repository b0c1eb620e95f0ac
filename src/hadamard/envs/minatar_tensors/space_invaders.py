"""Space Invaders: a cannon shoots at a block of aliens that descends and shoots back.

Grids are stored by column: bit y of column x is the cell (y, x), so bullets move by bit shifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.envs.minatar_tensors._grid import (
    FIRE,
    LEFT,
    RIGHT,
    ROW,
    SIDE,
    State,
    cells,
    count_bits,
    flags,
    pushed,
    whole_numbers,
)

ACTIONS = (0, 1, 3, 5)
CHANNELS = 6
DRAWS = 0
"""Nothing is random."""

_COLUMN = ROW
_BOTTOM = 1 << (SIDE - 1)
_WAVE = 0b1111
"""A column of a new wave: rows 0 to 3, in the columns 2 to 7."""
_COOL_DOWN = 5
_MOVE_INTERVAL = 12
_SHORTEST_INTERVAL = 6
_SHOT_INTERVAL = 10


def new(draws: Tensor, *, ramping: bool = False) -> State:
    """Start games: a full wave that moves left, and no bullets."""
    del ramping
    empty = torch.zeros((len(draws), SIDE), dtype=torch.int32, device=draws.device)
    return {
        "cannon": whole_numbers(5, draws),
        "aliens": empty + _wave(draws.device),
        "bullets": empty,
        "alien_bullets": empty.clone(),
        "to_right": flags(False, draws),
        "move_interval": whole_numbers(_MOVE_INTERVAL, draws),
        "move_timer": whole_numbers(_MOVE_INTERVAL, draws),
        "alien_shot_timer": whole_numbers(_SHOT_INTERVAL, draws),
        "shot_timer": whole_numbers(0, draws),
        "ramp_index": whole_numbers(0, draws),
    }


def _wave(device: torch.device) -> Tensor:
    column = torch.arange(SIDE, dtype=torch.int32, device=device)
    return ((column >= 2) & (column <= 7)).int() * _WAVE


def step(
    state: State, action: Tensor, draws: Tensor, *, ramping: bool = False
) -> tuple[State, Tensor, Tensor]:
    """Play one step."""
    column = torch.arange(SIDE, dtype=torch.int32, device=draws.device)
    cannon = pushed(state["cannon"], action, LEFT, RIGHT, 0, 9)
    muzzle = (column == cannon[:, None]).int() * _BOTTOM
    fired = (action == FIRE) & (state["shot_timer"] == 0)
    shot_timer = torch.where(fired, _COOL_DOWN, state["shot_timer"])
    bullets = (state["bullets"] | muzzle * fired[:, None]) >> 1
    alien_bullets = (state["alien_bullets"] << 1) & _COLUMN

    moving = state["move_timer"] == 0
    aliens, to_right, landed = _advance(state["aliens"], state["to_right"], moving)
    danger = alien_bullets | state["aliens"] | aliens
    terminal = ((danger & muzzle) != 0).any(1) | landed
    alive = count_bits(state["aliens"]).sum(1, dtype=torch.int32)
    interval = state["move_interval"]
    move_timer = torch.where(moving, torch.minimum(alive, interval), state["move_timer"])

    shooting = state["alien_shot_timer"] == 0
    alien_shot_timer = torch.where(shooting, _SHOT_INTERVAL, state["alien_shot_timer"])
    alien_bullets = alien_bullets | _shot(aliens, cannon) * shooting[:, None]

    killed = aliens & bullets
    aliens, bullets = aliens ^ killed, bullets ^ killed
    cleared = ~(aliens != 0).any(1)
    harder = (cleared & (interval > _SHORTEST_INTERVAL)).int() if ramping else 0
    after = {
        "cannon": cannon,
        "aliens": torch.where(cleared[:, None], _wave(draws.device), aliens),
        "bullets": bullets,
        "alien_bullets": alien_bullets,
        "to_right": to_right,
        "move_interval": interval - harder,
        "move_timer": move_timer - 1,
        "alien_shot_timer": alien_shot_timer - 1,
        "shot_timer": shot_timer - (shot_timer > 0).int(),
        "ramp_index": state["ramp_index"] + harder,
    }
    return after, count_bits(killed).sum(1).float(), terminal


def _advance(aliens: Tensor, to_right: Tensor, moving: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return aliens and direction after their move, if any, and whether they went off the bottom.

    At a side they turn and go down instead; from the bottom row they come back at the top.
    """
    turning = moving & torch.where(to_right, aliens[:, -1] != 0, aliens[:, 0] != 0)
    landed = turning & ((aliens & _BOTTOM) != 0).any(1)
    lower = ((aliens << 1) | (aliens >> (SIDE - 1))) & _COLUMN
    beside = torch.where(to_right[:, None], aliens.roll(1, 1), aliens.roll(-1, 1))
    moved = torch.where(turning[:, None], lower, beside)
    return torch.where(moving[:, None], moved, aliens), to_right ^ turning, landed


def _shot(aliens: Tensor, cannon: Tensor) -> Tensor:
    """Return the cell of the lowest alien in the column nearest to the cannon, the left of two."""
    column = torch.arange(SIDE, dtype=torch.int32, device=aliens.device)
    right = (column > cannon[:, None]).int()
    order = 2 * (column - cannon[:, None]).abs() + right
    order = torch.where(aliens != 0, order, 2 * SIDE)
    nearest = order == order.amin(1, keepdim=True)
    below = aliens | (aliens >> 1)
    below = below | (below >> 2)
    below = below | (below >> 4)
    below = below | (below >> 8)
    return (below ^ (below >> 1)) * nearest


def observe(state: State) -> Tensor:
    """Return the cannon, the aliens, those that go left and right, and both sides' bullets."""
    column = torch.arange(SIDE, dtype=torch.int32, device=state["aliens"].device)
    aliens, to_right = state["aliens"], state["to_right"][:, None]
    planes = (
        (column == state["cannon"][:, None]).int() * _BOTTOM,
        aliens,
        aliens * ~to_right,
        aliens * to_right,
        state["bullets"],
        state["alien_bullets"],
    )
    return cells(torch.stack(planes, dim=1)).transpose(2, 3).contiguous()


def from_package(game: Any) -> dict[str, Any]:
    """Return a game of the package as one row of a state."""
    bit = 1 << np.arange(SIDE)
    maps = (game.alien_map, game.f_bullet_map, game.e_bullet_map)
    aliens, bullets, alien_bullets = ((bit @ cells).astype(np.int32) for cells in maps)
    return {
        "cannon": np.int32(game.pos),
        "aliens": aliens,
        "bullets": bullets,
        "alien_bullets": alien_bullets,
        "to_right": np.bool_(game.alien_dir > 0),
        "move_interval": np.int32(game.enemy_move_interval),
        "move_timer": np.int32(game.alien_move_timer),
        "alien_shot_timer": np.int32(game.alien_shot_timer),
        "shot_timer": np.int32(game.shot_timer),
        "ramp_index": np.int32(game.ramp_index),
    }
