"""Modules are found by name, and unknown names list the nearest ones."""

from __future__ import annotations

import pytest

from hadamard.algos import dqn
from hadamard.core import discover


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    assert discover.find("hadamard.algos", "dqn", "algorithm") is dqn
    with pytest.raises(ValueError, match="^unknown algorithm 'DQM'; did you mean 'dqn'"):
        discover.find("hadamard.algos", "DQM", "algorithm")
    known = "dqn, mrq, ppo, pqn, simbav2"
    with pytest.raises(ValueError, match=rf"^unknown algorithm 'xxxx'\. Known: {known}$"):
        discover.find("hadamard.algos", "xxxx", "algorithm")
