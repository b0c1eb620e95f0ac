"""Seaquest: a submarine shoots fish and enemy submarines, rescues divers and comes up for air.

Lists of the package are grids here, which no length can overflow. A cell is six bits of an int64
row, one bit for each move timer of an enemy; what has no timer uses the first bit. Enemy submarines
have a grid for each shot timer. A grid is enough because of the package's own rules:

- An enemy spawns at most once per step, and a row's enemies all go the same way. They never have
  both cell and move timer in common, and do not arrive in a cell in the same step: at constant
  speed they stay as many steps apart as they spawned, and while speeds still change they spawn at
  least 15 steps apart, which keeps them in different cells (the tests try all cases).
- So enemies in one cell have spawned within the three steps of the final speed. The oldest, which
  the package's bullets hit, has the least time to its move.
- The player's bullets are five steps apart and move as fast as the player: no two share a cell, and
  none is where the player is.
- Enemy bullets do come together, and then move and vanish as one.
- Divers spawn every 30 steps and leave after 59: there are at most two, and since 30 is a multiple
  of their six steps per cell, the time to the next spawn also tells when all divers move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.envs.minatar_tensors._grid import (
    DOWN,
    FIRE,
    LEFT,
    RIGHT,
    SIDE,
    UP,
    State,
    cells,
    choose,
    flags,
    pushed,
    whole_numbers,
)
from hadamard.envs.minatar_tensors._timed_grid import (
    BITS,
    CELL,
    FIRST_BITS,
    by_direction,
    count,
    dense,
    directions,
    leftmost,
    lowest,
    merged,
    moved,
    occupied,
    point,
    waiting,
)

ACTIONS = (0, 1, 2, 3, 4, 5)
CHANNELS = 10
DRAWS = 5
"""Of a new enemy: its direction, its kind and its row; of a new diver: direction and row."""

_MAX_OXYGEN = 200
_OXYGEN_PER_CELL = _MAX_OXYGEN // SIDE
_MAX_DIVERS = 6
_SPAWN_SPEED = 20
_MOVE_SPEED = 5
_SHORTEST_MOVE = 2
_COOL_DOWN = 5
_SHOT_INTERVAL = 10
_DIVER_SPAWN_SPEED = 30
_DIVER_SLOTS = 2
_DIVER_STEPS = 6


def new(draws: Tensor, *, ramping: bool = False) -> State:
    """Start games: empty water, the player in the middle of the surface."""
    del ramping
    grid = torch.zeros((len(draws), SIDE), dtype=torch.int64, device=draws.device)
    grids = grid[:, None].repeat(1, _SHOT_INTERVAL + 1, 1)
    slots = torch.zeros((len(draws), _DIVER_SLOTS), dtype=torch.int32, device=draws.device)
    return {
        "player_x": whole_numbers(5, draws),
        "player_y": whole_numbers(0, draws),
        "player_to_right": flags(False, draws),
        "bullets": grids[:, :2].clone(),
        "enemy_bullets": grids[:, :2].clone(),
        "fish": grid,
        "submarines": grids,
        "to_right": grid.bool(),
        "diver_x": slots,
        "diver_y": slots - 1,
        "diver_to_right": slots.bool(),
        "rescued": whole_numbers(0, draws),
        "oxygen": whole_numbers(_MAX_OXYGEN, draws),
        "surfaced": flags(True, draws),
        "shot_timer": whole_numbers(0, draws),
        "diver_timer": whole_numbers(_DIVER_SPAWN_SPEED, draws),
        "spawn_speed": whole_numbers(_SPAWN_SPEED, draws),
        "spawn_timer": whole_numbers(_SPAWN_SPEED, draws),
        "move_speed": whole_numbers(_MOVE_SPEED, draws),
        "ramp_index": whole_numbers(0, draws),
    }


def step(
    state: State, action: Tensor, draws: Tensor, *, ramping: bool = False
) -> tuple[State, Tensor, Tensor]:
    """Play one step."""
    state = {**state, **_spawn_enemy(state, draws), **_spawn_diver(state, draws)}
    fires = (action == FIRE) & (state["shot_timer"] == 0)
    turns = (action == LEFT) | (action == RIGHT)
    muzzle = point(state["player_y"], state["player_x"]) * fires[:, None]
    muzzle = by_direction(muzzle, state["player_to_right"][:, None])
    state["bullets"] = state["bullets"] | muzzle
    shot_timer = torch.where(fires, _COOL_DOWN, state["shot_timer"])
    state["shot_timer"] = (shot_timer - 1).clamp(min=0)
    state["player_to_right"] = torch.where(turns, action == RIGHT, state["player_to_right"])
    state["player_x"] = pushed(state["player_x"], action, LEFT, RIGHT, 0, 9)
    state["player_y"] = pushed(state["player_y"], action, UP, DOWN, 0, 8)

    shot, shot_count = _shoot(state)
    state.update(shot)
    state.update(_rescue(state))
    swum, rammed_count, caught = _swim(state)
    state.update(swum)
    surfaced, bonus, drowned = _breathe(state, ramping)
    state.update(surfaced)
    return state, (shot_count + rammed_count + bonus).float(), caught | drowned


def _spawn_enemy(state: State, draws: Tensor) -> State:
    """Return the enemies with a new one, unless others cross its row in the other direction."""
    to_right, is_submarine = draws[:, 0] < 1 / 2, draws[:, 1] < 1 / 3
    fish, submarines = state["fish"], state["submarines"]
    spawning = state["spawn_timer"] == 0
    cell = point(1 + choose(draws[:, 2], 8), 9 * (~to_right).int())
    crossed = (fish | submarines.sum(1)) != 0
    against = (crossed & (cell != 0) & (state["to_right"] != to_right[:, None])).any(1)
    enemy = cell * (spawning & ~against)[:, None] << state["move_speed"][:, None]
    timer = torch.arange(_SHOT_INTERVAL + 1, device=draws.device)[:, None]
    new_submarine = (enemy * is_submarine[:, None])[:, None] * (timer == _SHOT_INTERVAL)
    timer = torch.where(spawning, state["spawn_speed"], state["spawn_timer"])
    return {
        "fish": fish | enemy * ~is_submarine[:, None],
        "submarines": submarines | new_submarine,
        "to_right": state["to_right"] | ((enemy != 0) & to_right[:, None]),
        "spawn_timer": timer - 1,
    }


def _spawn_diver(state: State, draws: Tensor) -> State:
    """Return the divers: a new one comes first, and the one before is then the only other."""
    to_right, y = draws[:, 3] < 1 / 2, 1 + choose(draws[:, 4], 8)
    spawning = (state["diver_timer"] == 0)[:, None]
    diver = {"diver_x": 9 * (~to_right).int(), "diver_y": y, "diver_to_right": to_right}
    return {
        name: torch.where(spawning, torch.stack([value, state[name][:, 0]], dim=1), state[name])
        for name, value in diver.items()
    }


def _shoot(state: State) -> tuple[State, Tensor]:
    """Move the player's bullets; each removes the oldest fish of its cell, or submarine."""
    fish, submarines = state["fish"], state["submarines"]
    bullets = moved(state["bullets"], directions(fish.device))
    flying = merged(bullets)
    all_submarines = submarines.sum(1)
    fish_hit = flying & occupied(fish)
    submarine_hit = flying & occupied(all_submarines) & ~fish_hit
    sunk = lowest(all_submarines & submarine_hit * CELL)
    hits = fish_hit | submarine_hit
    after = {
        "bullets": bullets & ~hits[:, None],
        "fish": fish & ~lowest(fish & fish_hit * CELL),
        "submarines": submarines & ~sunk[:, None],
    }
    return after, count(hits)


def _rescue(state: State) -> State:
    """Move the divers; those who meet the player before or after come aboard, if there is room."""
    x, y, to_right = state["diver_x"], state["diver_y"], state["diver_to_right"]
    player_x, rescued = state["player_x"][:, None], state["rescued"]
    moving = (state["diver_timer"] % _DIVER_STEPS == 1)[:, None]
    moved_x = torch.where(moving, x + 2 * to_right.int() - 1, x)
    meets = (y == state["player_y"][:, None]) & ((x == player_x) | (moved_x == player_x))
    boards = []
    for slot in range(_DIVER_SLOTS):
        boards.append(meets[:, slot] & (rescued < _MAX_DIVERS))
        rescued = rescued + boards[-1].int()
    stays = (y >= 0) & ~torch.stack(boards, dim=1) & (moved_x >= 0) & (moved_x <= 9)
    spawned = state["diver_timer"] == 0
    return {
        "diver_x": moved_x * stays,
        "diver_y": torch.where(stays, y, -1),
        "diver_to_right": to_right & stays,
        "diver_timer": torch.where(spawned, _DIVER_SPAWN_SPEED, state["diver_timer"]) - 1,
        "rescued": rescued,
    }


def _swim(state: State) -> tuple[State, Tensor, Tensor]:
    """Move the enemies and their bullets; return how many ran into bullets, and who is caught."""
    fish, submarines, to_right = state["fish"], state["submarines"], state["to_right"]
    player = point(state["player_y"], state["player_x"])
    bullets = state["bullets"]
    enemies = fish | submarines.sum(1)
    arriving = moved(enemies & FIRST_BITS, to_right)
    rammed = arriving & merged(bullets)
    timer = state["move_speed"][:, None]
    after_fish = waiting(fish) | (moved(fish & FIRST_BITS, to_right) & ~rammed) << timer
    moved_submarines = moved(submarines & FIRST_BITS, to_right[:, None])
    # Submarines fire where they have moved, even those that were hit there.
    firing = occupied(waiting(submarines[:, 0])) | moved_submarines[:, 0]
    after = waiting(submarines) | (moved_submarines & ~rammed[:, None]) << timer[:, None]
    after = torch.cat([after[:, 1:], after[:, :1]], dim=1)

    enemy_bullets = state["enemy_bullets"] | by_direction(firing, to_right)
    moved_bullets = moved(enemy_bullets, directions(fish.device))
    danger = enemies | arriving | merged(enemy_bullets | moved_bullets)
    caught = ((danger & player * CELL) != 0).any(1)
    return (
        {
            "bullets": bullets & ~rammed[:, None],
            "enemy_bullets": moved_bullets,
            "fish": after_fish,
            "submarines": after,
            "to_right": to_right & ((after_fish | after.sum(1)) != 0),
        },
        count(rammed),
        caught,
    )


def _breathe(state: State, ramping: bool) -> tuple[State, Tensor, Tensor]:
    """Use oxygen, or surface; return the reward of a full crew, and who drowned or came alone."""
    oxygen, rescued = state["oxygen"], state["rescued"]
    below = state["player_y"] > 0
    arriving = ~below & ~state["surfaced"]
    surfacing = arriving & (rescued != 0)
    full = surfacing & (rescued == _MAX_DIVERS)
    # A full crew leaves, and then one more: the package, too, counts one less than nobody.
    aboard = torch.where(full, 0, rescued) - surfacing.int()
    after = {
        "oxygen": torch.where(surfacing, _MAX_OXYGEN, oxygen - below.int()),
        "rescued": aboard,
        "surfaced": ~below & (state["surfaced"] | surfacing),
    }
    if ramping:
        spawn_speed, move_speed = state["spawn_speed"], state["move_speed"]
        can_rise = (spawn_speed > 1) | (move_speed > _SHORTEST_MOVE)
        rises = surfacing & can_rise
        faster = rises & (move_speed > _SHORTEST_MOVE) & (state["ramp_index"] % 2 == 1)
        after["spawn_speed"] = spawn_speed - (rises & (spawn_speed > 1)).int()
        after["move_speed"] = move_speed - faster.int()
        after["ramp_index"] = state["ramp_index"] + rises.int()
    bonus = oxygen // _OXYGEN_PER_CELL * full
    return after, bonus, (oxygen <= 0) | (arriving & (rescued == 0))


def observe(state: State) -> Tensor:
    """Return the package's ten channels, in its order."""
    y, x, to_right = state["player_y"], state["player_x"], state["player_to_right"]
    fish, submarines = occupied(state["fish"]), occupied(state["submarines"].sum(1))
    divers = point(state["diver_y"], state["diver_x"])
    behind_divers = merged(moved(divers, ~state["diver_to_right"][..., None]))
    bottom = torch.arange(SIDE, device=x.device) == SIDE - 1
    oxygen = leftmost(state["oxygen"].clamp(min=0) // _OXYGEN_PER_CELL)
    # The gauge of divers fills from the right, but for the last cell.
    rescued = FIRST_BITS >> BITS & ~leftmost(SIDE - 1 - state["rescued"].clamp(min=0))
    planes = (
        point(y, x),
        point(y, x + 1 - 2 * to_right.int()),
        merged(state["bullets"]),
        behind_divers | moved(fish | submarines, ~state["to_right"]),
        merged(state["enemy_bullets"]),
        fish,
        submarines,
        oxygen[:, None] * bottom,
        rescued[:, None] * bottom,
        merged(divers),
    )
    return cells(dense(torch.stack(planes, dim=1)))


def from_package(game: Any) -> dict[str, Any]:
    """Return a game of the package as one row of a state."""
    fish, to_right = np.zeros(SIDE, np.int64), np.zeros(SIDE, np.bool_)
    submarines = np.zeros((_SHOT_INTERVAL + 1, SIDE), np.int64)
    for x, y, enemy_to_right, timer in game.e_fish:
        fish[y] |= 1 << BITS * x + timer
        to_right[y] = enemy_to_right
    for x, y, enemy_to_right, timer, shot_timer in game.e_subs:
        submarines[shot_timer, y] |= 1 << BITS * x + timer
        to_right[y] = enemy_to_right
    divers = np.array([(0, -1, 0)] * _DIVER_SLOTS, np.int32)
    for x, y, diver_to_right, _ in game.divers:
        # A new diver has moved as often as the time since its spawn allows.
        travelled = x if diver_to_right else SIDE - 1 - x
        is_older = travelled != (_DIVER_SPAWN_SPEED - game.d_spawn_timer) // _DIVER_STEPS
        divers[int(is_older)] = x, y, diver_to_right
    values = {
        "player_x": game.sub_x,
        "player_y": game.sub_y,
        "rescued": game.diver_count,
        "oxygen": game.oxygen,
        "shot_timer": game.shot_timer,
        "diver_timer": game.d_spawn_timer,
        "spawn_speed": game.e_spawn_speed,
        "spawn_timer": game.e_spawn_timer,
        "move_speed": game.move_speed,
        "ramp_index": game.ramp_index,
    }
    return {
        **{name: np.int32(value) for name, value in values.items()},
        "player_to_right": np.bool_(game.sub_or),
        "surfaced": np.bool_(game.surface),
        "bullets": _bullets(game.f_bullets),
        "enemy_bullets": _bullets(game.e_bullets),
        "fish": fish,
        "submarines": submarines,
        "to_right": to_right,
        "diver_x": divers[:, 0],
        "diver_y": divers[:, 1],
        "diver_to_right": divers[:, 2] != 0,
    }


def _bullets(bullets: list[Any]) -> NDArray[np.int64]:
    grids = np.zeros((2, SIDE), np.int64)
    for x, y, to_right in bullets:
        grids[int(to_right), y] |= 1 << BITS * x
    return grids
