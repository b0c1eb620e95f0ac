"""Seaquest's tensors: the package's transitions, and the rules that let grids replace lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hadamard.envs.minatar_tensors import seaquest
from tests.support.minatar import (
    Player,
    assert_equal_to_tensors,
    assert_same_state,
    mostly,
    package_game,
    random_policy,
    record,
    state_of,
)

pytest.importorskip("minatar")

LEFT, UP, RIGHT, DOWN, FIRE = 1, 2, 3, 4, 5


def rescue(game: Any, rng: np.random.Generator) -> int:
    """Collect divers, also more than the six who fit; come up when oxygen is short; fire ahead.

    A player with fewer divers than none can come up again and again, and mostly does until the
    game is fastest.
    """
    x, y, count = game.sub_x, game.sub_y, game.diver_count
    if count < 0 and game.ramping and game.e_spawn_speed > 1 and rng.random() < 0.9:
        return UP if y > 0 else DOWN
    if 0 < game.oxygen < (120 if count == 6 else 30) and count:
        return UP
    ahead = [e for e in game.e_fish + game.e_subs if e[1] == y and (e[0] > x) == game.sub_or]
    if ahead and game.shot_timer == 0:
        return FIRE
    if not game.divers:
        return DOWN if y < 4 else UP if y > 4 else LEFT if x > 5 else RIGHT
    _, goal_x, goal_y = min((abs(d[0] - x) + abs(d[1] - y), d[0], d[1]) for d in game.divers)
    if y != goal_y:
        return DOWN if y < goal_y else UP
    return 0 if x == goal_x else RIGHT if x < goal_x else LEFT


def fight(game: Any, rng: np.random.Generator) -> int:
    """Rescue until the game is fastest, then stay below and fire both ways."""
    if game.e_spawn_speed > 1:
        return rescue(game, rng)
    if game.sub_y == 0 or rng.random() < 0.05:
        return int(rng.integers(1, 5))
    return FIRE if game.shot_timer == 0 else int(rng.choice([0, LEFT, RIGHT]))


def bits(grid: NDArray[np.int64]) -> int:
    return sum(number.bit_count() for number in grid.ravel().tolist())


def counted(from_package: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Check that the grids hold each thing of the package's lists as a bit of its own."""

    def convert(game: Any) -> dict[str, Any]:
        row = from_package(game)
        assert bits(row["fish"]) == len(game.e_fish)
        assert bits(row["submarines"]) == len(game.e_subs)
        assert bits(row["bullets"]) == len(game.f_bullets) <= 2
        assert [game.sub_x, game.sub_y] not in [bullet[:2] for bullet in game.f_bullets]
        assert (row["diver_y"] >= 0).sum() == len(game.divers)
        return row

    return convert


@pytest.mark.parametrize("ramping", [False, True])
def test_the_packages_transitions(ramping: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seaquest, "from_package", counted(seaquest.from_package))
    players = [
        Player(random_policy(seaquest.ACTIONS)),
        Player(mostly(rescue, seaquest.ACTIONS, 0.05)),
        Player(mostly(fight, seaquest.ACTIONS, 0.05), lives=3_000),
    ]
    played = record(
        "seaquest",
        seaquest,
        players,
        50_000,
        first_columns={"_spawn_enemy": 0, "_spawn_diver": 3},
        ramping=ramping,
    )
    assert_equal_to_tensors(played, seaquest, ramping=ramping)
    rescued = [
        (a["rescued"], b["rescued"]) for a, b in zip(played.before, played.after, strict=True)
    ]
    assert rescued.count((6, -1)) > 5, "no full crew has come home"
    assert played.reward.count(2.0) > 0
    fastest = [row for row in played.before if row["spawn_speed"] == 1 and row["move_speed"] == 2]
    assert len(fastest) > 10_000 if ramping else not fastest
    enemies = max(bits(row["fish"]) + bits(row["submarines"]) for row in played.before)
    assert enemies > (20 if ramping else 2)


def submarine_shot_as_it_fires(game: Any) -> None:
    game.e_subs = [[3, 4, True, 0, 0]]
    game.f_bullets = [[5, 4, False]]


def seventh_diver(game: Any) -> None:
    game.sub_x, game.sub_y, game.diver_count = 7, 4, 6
    game.d_spawn_timer, game.divers = 16, [[7, 4, True, 3]]


def two_divers_for_one_place(game: Any) -> None:
    seventh_diver(game)
    game.diver_count = 5
    game.divers.append([7, 4, False, 3])


def two_divers_arrive_for_one_place(game: Any) -> None:
    two_divers_for_one_place(game)
    # They change places; the player waits where the older arrives, and the newer is.
    game.sub_x, game.d_spawn_timer = 8, 19
    game.divers = [[7, 4, True, 0], [8, 4, False, 0]]


def oldest_of_three_fish_is_shot(game: Any) -> None:
    game.move_speed = 2
    game.e_fish = [[4, 4, True, 0], [4, 4, True, 1], [4, 4, True, 2]]
    game.f_bullets = [[5, 4, False]]


@pytest.mark.parametrize(
    "arrange",
    [
        submarine_shot_as_it_fires,
        seventh_diver,
        two_divers_for_one_place,
        two_divers_arrive_for_one_place,
        oldest_of_three_fish_is_shot,
    ],
)
def test_rare_cases(arrange: Callable[[Any], None]) -> None:
    game = package_game("seaquest")
    arrange(game)
    before = seaquest.from_package(game)
    reward, terminal = game.act(0)
    state, rewards, terminals = seaquest.step(
        state_of([before]), torch.zeros(1, dtype=torch.int64), torch.zeros(1, seaquest.DRAWS)
    )
    assert_same_state(state, state_of([seaquest.from_package(game)]))
    assert (rewards.tolist(), terminals.tolist()) == ([reward], [terminal])


def places(spawn: NDArray[np.int64], speed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an enemy's cell after each step, and the time to its move, for each row of speeds.

    Args:
        spawn: (cases,) the step in which it spawns.
        speed: (cases, steps) the game's move speed in each step.
    """
    x, timer = np.full(len(spawn), -1), np.zeros(len(spawn), np.int64)
    history = []
    for step in range(speed.shape[1]):
        x = np.where(spawn == step, 0, x)
        timer = np.where(spawn == step, speed[:, step], timer)
        moving = (x >= 0) & (timer == 0)
        x = x + moving
        timer = np.where(moving, speed[:, step], timer - 1)
        history.append((x, timer))
    return np.array(history)


def test_enemies_of_a_row_never_meet_while_speeds_change() -> None:
    """Grids need this: enemies follow each other 15 to 20 steps apart while speeds still change.

    A later one follows at least as far behind, since every one between keeps its own distance.
    """
    steps = np.arange(90)
    # The move speed falls three times; -1 stands for a fall before the older enemy spawns.
    falls = np.array(list(itertools.combinations_with_replacement(range(-1, 61), 3)))
    speed = 5 - (steps > falls[:, :, None]).sum(1)
    older = places(np.zeros(len(falls), np.int64), speed)
    for interval in range(15, 21):
        younger = places(np.full(len(falls), interval), speed)
        both = (younger[:, 0] >= 0) & (older[:, 0] <= 9)
        assert both.any()
        assert (younger[:, 0] < older[:, 0])[both].all()


@pytest.mark.parametrize("speed", [2, 3, 4, 5])
def test_enemies_of_a_row_are_told_apart_at_constant_speed(speed: int) -> None:
    """Of two in a cell the older is the one with less time to its move."""
    speeds = np.full((1, 90), speed)
    older = places(np.zeros(1, np.int64), speeds)
    for interval in range(1, 60):
        younger = places(np.full(1, interval), speeds)
        together = (younger[:, 0] == older[:, 0]) & (older[:, 0] <= 9)
        assert (older[:, 1] < younger[:, 1])[together].all()
        assert together.any() == (interval <= speed)
