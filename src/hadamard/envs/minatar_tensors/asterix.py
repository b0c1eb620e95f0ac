"""Asterix: the player collects gold and avoids enemies, which cross the rows from both sides.

A row from 1 to 8 holds at most one entity, so each kind of entity is one bit per cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.envs.minatar_tensors._grid import (
    DOWN,
    LEFT,
    RIGHT,
    ROW,
    SIDE,
    UP,
    State,
    cells,
    choose,
    count_bits,
    point,
    pushed,
    touches,
    whole_numbers,
)

ACTIONS = (0, 1, 2, 3, 4)
CHANNELS = 4
DRAWS = 3
"""Of a new entity: its side, its kind and its row."""

_RAMP_INTERVAL = 100
_SPAWN_SPEED = 10
_MOVE_SPEED = 5
_RIGHT_END = 1 << (SIDE - 1)


def new(draws: Tensor, *, ramping: bool = False) -> State:
    """Start games: empty rows, the player in the middle."""
    del ramping
    rows = torch.zeros((len(draws), SIDE), dtype=torch.int32, device=draws.device)
    return {
        "player_x": whole_numbers(5, draws),
        "player_y": whole_numbers(5, draws),
        "enemies": rows,
        "gold": rows.clone(),
        "to_right": rows.bool(),
        "spawn_speed": whole_numbers(_SPAWN_SPEED, draws),
        "spawn_timer": whole_numbers(_SPAWN_SPEED, draws),
        "move_speed": whole_numbers(_MOVE_SPEED, draws),
        "move_timer": whole_numbers(_MOVE_SPEED, draws),
        "ramp_timer": whole_numbers(_RAMP_INTERVAL, draws),
        "ramp_index": whole_numbers(0, draws),
    }


def step(
    state: State, action: Tensor, draws: Tensor, *, ramping: bool = False
) -> tuple[State, Tensor, Tensor]:
    """Play one step."""
    spawning = state["spawn_timer"] == 0
    moving = state["move_timer"] == 0
    enemies, gold, to_right = _spawn(state, spawning, draws)
    player_x = pushed(state["player_x"], action, LEFT, RIGHT, 0, 9)
    player_y = pushed(state["player_y"], action, UP, DOWN, 1, 8)
    player = point(player_y, player_x)

    # The player meets entities before they move and after.
    collected = gold & player
    gold = gold & ~player
    moved_enemies = torch.where(moving[:, None], _moved(enemies, to_right), enemies)
    moved_gold = torch.where(moving[:, None], _moved(gold, to_right), gold)
    terminal = touches(enemies | moved_enemies, player)
    reward = ((collected | (moved_gold & player)) != 0).any(1).float()
    moved_gold = moved_gold & ~player
    after = {
        **state,
        "player_x": player_x,
        "player_y": player_y,
        "enemies": moved_enemies,
        "gold": moved_gold,
        "to_right": to_right & ((moved_enemies | moved_gold) != 0),
        "spawn_timer": torch.where(spawning, state["spawn_speed"], state["spawn_timer"]) - 1,
        "move_timer": torch.where(moving, state["move_speed"], state["move_timer"]) - 1,
    }
    if ramping:
        after.update(_harder(state))
    return after, reward, terminal


def _spawn(state: State, spawning: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return enemies, gold and directions with a new entity in one of the free rows, if any."""
    to_right, is_gold = draws[:, 0] < 1 / 2, draws[:, 1] < 1 / 3
    row = torch.arange(SIDE, dtype=torch.int32, device=draws.device)
    occupied = (state["enemies"] | state["gold"]) != 0
    free = ~occupied & (row >= 1) & (row <= 8)
    free_rows = (free.int() << row).sum(1, dtype=torch.int32)
    choice = choose(draws[:, 2], count_bits(free_rows))
    free_above = count_bits(free_rows[:, None] & ((1 << row) - 1))
    here = spawning[:, None] & free & (free_above == choice[:, None])
    entity = here * (_RIGHT_END - (_RIGHT_END - 1) * to_right.int())[:, None]
    return (
        state["enemies"] | entity * ~is_gold[:, None],
        state["gold"] | entity * is_gold[:, None],
        state["to_right"] | (here & to_right[:, None]),
    )


def _moved(entities: Tensor, to_right: Tensor) -> Tensor:
    return torch.where(to_right, entities << 1, entities >> 1) & ROW


def _harder(state: State) -> State:
    """Return speeds and timer after a step with difficulty ramping."""
    spawn_speed, move_speed = state["spawn_speed"], state["move_speed"]
    ramp_timer, ramp_index = state["ramp_timer"], state["ramp_index"]
    can_rise = (spawn_speed > 1) | (move_speed > 1)
    rises = can_rise & (ramp_timer < 0)
    faster = rises & (move_speed > 1) & (ramp_index % 2 == 1)
    return {
        "spawn_speed": spawn_speed - (rises & (spawn_speed > 1)).int(),
        "move_speed": move_speed - faster.int(),
        "ramp_timer": torch.where(rises, _RAMP_INTERVAL, ramp_timer - can_rise.int()),
        "ramp_index": ramp_index + rises.int(),
    }


def observe(state: State) -> Tensor:
    """Return the player, the enemies, the cells behind entities and the gold."""
    entities = state["enemies"] | state["gold"]
    planes = (
        point(state["player_y"], state["player_x"]),
        state["enemies"],
        _moved(entities, ~state["to_right"]),
        state["gold"],
    )
    return cells(torch.stack(planes, dim=1))


def from_package(game: Any) -> dict[str, Any]:
    """Return a game of the package as one row of a state."""
    enemies, gold = np.zeros(SIDE, np.int32), np.zeros(SIDE, np.int32)
    directions = np.zeros(SIDE, np.bool_)
    for entity in game.entities:
        if entity is not None:
            x, y, to_right, is_gold = entity
            (gold if is_gold else enemies)[y] = 1 << x
            directions[y] = to_right
    names = ("spawn_speed", "spawn_timer", "move_speed", "move_timer", "ramp_timer", "ramp_index")
    return {
        "player_x": np.int32(game.player_x),
        "player_y": np.int32(game.player_y),
        "enemies": enemies,
        "gold": gold,
        "to_right": directions,
        **{name: np.int32(getattr(game, name)) for name in names},
    }
