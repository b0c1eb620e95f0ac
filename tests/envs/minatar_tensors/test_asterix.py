"""Asterix's tensors: the package's transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hadamard.envs.minatar_tensors import asterix
from tests.support.minatar import Player, assert_equal_to_tensors, mostly, random_policy, record

pytest.importorskip("minatar")


def toward_gold(game: Any, rng: np.random.Generator) -> int:
    """Go toward the nearest gold, and never where an enemy is or arrives."""
    gold = [e for e in game.entities if e is not None and e[3]]
    enemies = [e for e in game.entities if e is not None and not e[3]]

    def cost(action: int) -> tuple[int, int]:
        x = min(max(game.player_x + (action == 3) - (action == 1), 0), 9)
        y = min(max(game.player_y + (action == 4) - (action == 2), 1), 8)
        danger = sum(e[1] == y and (e[0] == x or e[0] + (1 if e[2] else -1) == x) for e in enemies)
        return danger, min((abs(x - g[0]) + abs(y - g[1]) for g in gold), default=0)

    return min(asterix.ACTIONS, key=cost)


@pytest.mark.parametrize("ramping", [False, True])
def test_the_packages_transitions(ramping: bool) -> None:
    players = [
        Player(random_policy((0, 1, 2, 3, 4, 5))),
        Player(mostly(toward_gold, asterix.ACTIONS, 0.05)),
        Player(mostly(toward_gold, asterix.ACTIONS, 0.5), lives=200),
    ]
    played = record(
        "asterix", asterix, players, 50_000, first_columns={"_spawn_entity": 0}, ramping=ramping
    )
    assert_equal_to_tensors(played, asterix, ramping=ramping)
    if ramping:
        assert any(row["spawn_speed"] == row["move_speed"] == 1 for row in played.before)
        # All rows are filled: nothing can spawn.
        assert any(np.count_nonzero(row["enemies"] | row["gold"]) == 8 for row in played.before)
