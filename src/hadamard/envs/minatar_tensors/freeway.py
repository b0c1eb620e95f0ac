"""Freeway: a chicken crosses eight lanes of cars, as often as it can in 2,500 frames.

The package draws a car's direction as the sign of ``rand() - 0.5``; at exactly 0.5 it would make a
car without speed, which it cannot draw. Here that car goes right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.envs.minatar_tensors._grid import (
    DOWN,
    SIDE,
    UP,
    State,
    cells,
    choose,
    point,
    whole_numbers,
)

ACTIONS = (0, 2, 4)
CHANNELS = 7
_CARS = 8
DRAWS = 2 * _CARS
"""Each car's speed, then each car's direction."""

_SPEEDS = 5
_PLAYER_SPEED = 3
_TIME_LIMIT = 2500
_COLUMN = 4
_START = 9


def new(draws: Tensor, *, ramping: bool = False) -> State:
    """Start games: all cars at the left side, the chicken at the bottom."""
    del ramping
    speed = _speeds(draws)
    return {
        "chicken": whole_numbers(_START, draws),
        "car_x": torch.zeros_like(speed),
        "car_speed": speed,
        "car_timer": speed.abs(),
        "move_timer": whole_numbers(_PLAYER_SPEED, draws),
        "time_left": whole_numbers(_TIME_LIMIT, draws),
    }


def _speeds(draws: Tensor) -> Tensor:
    """Return new cars' frames per move, less one; negative for cars that go left."""
    frames = 1 + choose(draws[:, :_CARS], _SPEEDS)
    return torch.where(draws[:, _CARS:] < 1 / 2, -frames, frames)


def step(
    state: State, action: Tensor, draws: Tensor, *, ramping: bool = False
) -> tuple[State, Tensor, Tensor]:
    """Play one step."""
    del ramping
    ready = state["move_timer"] == 0
    up, down = ready & (action == UP), ready & (action == DOWN)
    chicken = (state["chicken"] + down.int() - up.int()).clamp(0, 9)
    move_timer = torch.where(up | down, _PLAYER_SPEED, state["move_timer"])
    arrived = chicken == 0
    chicken = torch.where(arrived, _START, chicken)

    # Whoever crosses gives all cars new speeds; the cars stay where they are.
    speed = torch.where(arrived[:, None], _speeds(draws), state["car_speed"])
    timer = torch.where(arrived[:, None], speed.abs(), state["car_timer"])
    moving = timer == 0
    old_x = state["car_x"]
    x = torch.where(moving, _neighbor(old_x, speed > 0), old_x)
    lane = torch.arange(1, _CARS + 1, dtype=torch.int32, device=draws.device)
    hit = ((lane == chicken[:, None]) & ((old_x == _COLUMN) | (x == _COLUMN))).any(1)
    time_left = state["time_left"] - 1
    after = {
        "chicken": torch.where(hit, _START, chicken),
        "car_x": x,
        "car_speed": speed,
        "car_timer": torch.where(moving, speed.abs(), timer - 1),
        "move_timer": move_timer - (move_timer > 0).int(),
        "time_left": time_left,
    }
    return after, arrived.float(), time_left < 0


def _neighbor(x: Tensor, on_the_right: Tensor) -> Tensor:
    """Return the next cell, around the edges."""
    neighbor = x + 2 * on_the_right.int() - 1
    return neighbor + SIDE * ((neighbor < 0).int() - (neighbor > 9).int())


def observe(state: State) -> Tensor:
    """Return the chicken, the cars, and the cells behind cars in one channel per speed."""
    x, speed = state["car_x"], state["car_speed"]
    behind = 1 << _neighbor(x, speed < 0)
    column = torch.full_like(state["chicken"], _COLUMN)
    trails = [behind * (speed.abs() == number) for number in range(1, _SPEEDS + 1)]
    lanes = torch.stack([1 << x, *trails], dim=1)
    lanes = torch.nn.functional.pad(lanes, (1, 1))
    return cells(torch.cat([point(state["chicken"], column)[:, None], lanes], dim=1))


def from_package(game: Any) -> dict[str, Any]:
    """Return a game of the package as one row of a state."""
    x, _, timer, speed = np.array(game.cars, dtype=np.int32).T
    return {
        "chicken": np.int32(game.pos),
        "car_x": x,
        "car_speed": speed,
        "car_timer": timer,
        "move_timer": np.int32(game.move_timer),
        "time_left": np.int32(game.terminate_timer),
    }
