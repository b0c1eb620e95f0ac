"""Freeway's tensors: the package's transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hadamard.envs.minatar_tensors import freeway
from tests.support.minatar import (
    Player,
    assert_equal_to_tensors,
    mostly,
    random_policy,
    record,
)

pytest.importorskip("minatar")


def up(game: Any, rng: np.random.Generator) -> int:
    return 2


def test_the_packages_transitions() -> None:
    players = [
        Player(random_policy((0, 1, 2, 3, 4, 5))),
        Player(mostly(up, freeway.ACTIONS, 0.3)),
    ]
    played = record(
        "freeway",
        freeway,
        players,
        100_000,
        first_columns={"_randomize_cars": 0},
        ramping=True,
    )
    assert_equal_to_tensors(played, freeway, ramping=True)
    assert sum(played.reward) > 100
    assert sum(played.terminal) > 30
    positions = [
        (a["chicken"], b["chicken"]) for a, b in zip(played.before, played.after, strict=True)
    ]
    assert sum(before < 8 and after == 9 for before, after in positions) > 1000
