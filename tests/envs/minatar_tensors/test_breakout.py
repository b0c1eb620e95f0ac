"""Breakout's tensors: the package's transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hadamard.envs.minatar_tensors import breakout
from tests.support.minatar import Player, assert_equal_to_tensors, mostly, random_policy, record

pytest.importorskip("minatar")


def under_the_ball(game: Any, rng: np.random.Generator) -> int:
    """Keep the paddle under the ball, or beside it, where the ball comes down."""
    goal = game.ball_x
    if game.ball_y >= 7 and rng.random() < 0.3:
        goal += 1 if game.ball_dir in (1, 2) else -1
    if game.pos == goal:
        return 0
    return 1 if game.pos > goal else 3


def test_the_packages_transitions() -> None:
    players = [
        Player(random_policy((0, 1, 2, 3, 4, 5))),
        Player(mostly(under_the_ball, breakout.ACTIONS, 0.02)),
        Player(mostly(under_the_ball, breakout.ACTIONS, 0.002)),
    ]
    played = record(
        "breakout", breakout, players, 100_000, first_columns={"reset": 0}, ramping=True
    )
    bricks = [(a["bricks"], b["bricks"]) for a, b in zip(played.before, played.after, strict=True)]
    assert sum(before == 0 and after != 0 for before, after in bricks) > 20
    assert sum(played.terminal) > 1000
    assert_equal_to_tensors(played, breakout, ramping=True)
