"""Space Invaders' tensors: the package's transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hadamard.envs.minatar_tensors import space_invaders
from tests.support.minatar import (
    Player,
    assert_equal_to_tensors,
    mostly,
    random_policy,
    record,
)

pytest.importorskip("minatar")


def dodge_and_shoot(game: Any, rng: np.random.Generator) -> int:
    """Leave a column where a bullet comes down; else shoot below aliens, or go there."""

    def safe(x: int) -> bool:
        return 0 <= x <= 9 and not game.e_bullet_map[7:9, x].any()

    if not safe(game.pos):
        return 1 if safe(game.pos - 1) else 3
    columns = np.flatnonzero(game.alien_map.any(axis=0))
    if game.pos in columns and game.shot_timer == 0:
        return 5
    goal = columns[np.abs(columns - game.pos).argmin()]
    move = int(np.sign(goal - game.pos))
    return {-1: 1, 0: 0, 1: 3}[move] if safe(game.pos + move) else 0


@pytest.mark.parametrize("ramping", [False, True])
def test_the_packages_transitions(ramping: bool) -> None:
    players = [
        Player(random_policy((0, 1, 2, 3, 4, 5))),
        Player(mostly(dodge_and_shoot, space_invaders.ACTIONS, 0.05)),
        Player(mostly(dodge_and_shoot, space_invaders.ACTIONS, 0.2), lives=1000),
    ]
    played = record(
        "space_invaders", space_invaders, players, 50_000, first_columns={}, ramping=ramping
    )
    assert_equal_to_tensors(played, space_invaders, ramping=ramping)
    before = np.stack([row["aliens"] for row in played.before])
    after = np.stack([row["aliens"] for row in played.after])
    new_waves = (before != 0).sum(1) + 3 < (after != 0).sum(1)
    assert new_waves.sum() > 10
    assert (before >> 9).any(1).sum() > 100, "no alien has come to the ground"
    fastest = min(row["move_interval"] for row in played.before)
    assert fastest == (6 if ramping else 12)
