"""Groups of environments."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from hadamard import envs as suites
from hadamard.core.types import Episode, Step
from hadamard.envs import make
from hadamard.envs.groups import join_steps, split_step
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


def test_a_joined_step_is_divided_into_its_parts() -> None:
    def step(*ended: int) -> Step:
        flags = torch.zeros(2, dtype=torch.bool)
        flags[list(ended)] = True
        return Step(
            obs=torch.rand(2, 3),
            reward=torch.rand(2),
            terminated=flags,
            truncated=flags,
            final_index=torch.tensor(ended) if ended else None,
            final_obs=torch.rand(len(ended), 3) if ended else None,
            any_truncated=bool(ended),
            episodes=tuple(Episode(env, float(env), 7) for env in ended),
        )

    for parts in ([step(), step()], [step(1), step(), step(0, 1)], [step(0)]):
        for part, expected in zip(split_step(join_steps(parts), len(parts)), parts, strict=True):
            assert part.any_truncated == expected.any_truncated
            assert part.episodes == expected.episodes
            for name in ("obs", "reward", "terminated", "truncated", "final_index", "final_obs"):
                ours, theirs = getattr(part, name), getattr(expected, name)
                assert ours is theirs is None or torch.equal(ours, theirs)
