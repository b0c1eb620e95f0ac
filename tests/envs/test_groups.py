"""Groups of environments."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from hadamard import envs as suites
from hadamard.envs import make
from tests.support.environments import check_parts, open_envs


@pytest.mark.skipif(bool(suites.missing("minatar")), reason="needs the minatar extra")
def test_groups_give_the_same_steps_as_alone() -> None:
    with open_envs("minatar/asterix", 3, 5, groups=2) as grouped:
        check_parts(grouped, "groups")


def test_groups_are_limited_by_environments_and_workers() -> None:
    with pytest.raises(ValueError, match="1..2.*got 3"):
        make("probe/constant", 0, 2, groups=3)
    with pytest.raises(ValueError, match="1..2.*got 0"):
        make("probe/constant", 0, 2, groups=0)
    with pytest.raises(ValueError, match="1..1, .*worker processes.*got 2"):
        make("probe/constant", 0, 4, groups=2, workers=1)
    with open_envs("probe/constant", 0, 4, groups=2, workers=3) as grouped:
        assert len(multiprocessing.active_children()) == 3
        grouped.reset()
        with pytest.raises(ValueError, match="4 actions.*(3,)"):
            grouped.send(torch.zeros(3, dtype=torch.int64))
        assert grouped.step(torch.zeros(4, dtype=torch.int64)).reward.tolist() == [1.0] * 4
    assert not multiprocessing.active_children()
