"""Subsequences and priorities in the replay."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import chisquare

from hadamard.learning.replay import Indices, Replay
from tests.support.replay import Episodes

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("stack", "num_envs", "slots", "horizon", "ends", "limits"),
    [
        (3, 1, 40, 5, 0.08, 0.08),
        (1, 2, 23, 5, 0.0, 0.15),
        (3, 2, 16, 3, 0.3, 0.0),
        (2, 3, 31, 4, 0.1, 0.25),
        (1, 1, 12, 5, 0.5, 0.3),  # most subsequences contain an end
    ],
)
def test_subsequences_never_cross_a_time_limit(
    stack: int, num_envs: int, slots: int, horizon: int, ends: float, limits: float
) -> None:
    episodes = Episodes(num_envs, stack, ends, limits)
    replay = Replay(
        episodes.spec, num_envs, slots * num_envs, CPU, horizon=horizon, prioritized=True
    )
    replay.frames.fill_(math.nan)  # unwritten frames must not matter
    replay.begin(episodes.obs())
    ended_early = 0
    for _ in range(5 * slots):
        replay.add(*episodes.step())
        expected = episodes.draws(slots, horizon)
        usable = replay.usable.nonzero().tolist()
        assert {(env, slot) for env, slot in usable} == set(expected)
        if not usable:
            continue
        indices = Indices(*torch.tensor(usable).T)
        obs = replay.observations(indices, 0, horizon + 1)
        action, reward, terminated = replay.steps(indices, horizon)
        assert obs.shape == (len(usable), horizon + 1, *episodes.spec.obs_shape)
        for i, (env, slot) in enumerate(usable):
            steps = expected[env, slot]
            ended_early += len(steps) < horizon
            for t, step in enumerate(steps):
                assert torch.equal(obs[i, t], step["obs"])
                assert torch.equal(obs[i, t + 1], step["next_obs"])
                assert torch.equal(action[i, t], step["action"])
                assert reward[i, t].item() == step["reward"]
                assert bool(terminated[i, t]) == step["terminated"]
    assert min(episodes.pushed) > 4 * slots
    assert (ended_early > 0) == (ends > 0)


def test_draws_are_in_proportion_to_priorities() -> None:
    episodes = Episodes(2, 1, 0.1, 0.1)
    replay = Replay(episodes.spec, 2, 60, CPU, horizon=3, prioritized=True)
    replay.begin(episodes.obs())
    for _ in range(50):
        replay.add(*episodes.step())
    assert replay.priority is not None
    usable = replay.usable.nonzero()
    assert replay.priority[replay.usable].tolist() == [1.0] * len(usable)
    priorities = torch.linspace(1, 4, len(usable))
    replay.set_priority(Indices(*usable.T), priorities)
    counts = torch.zeros(2, 30)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        indices = replay.draw(2_000, generator)
        counts.index_put_(tuple(indices), torch.ones(2_000), accumulate=True)
    assert not counts[~replay.usable].any()
    expected = 40_000 * priorities / priorities.sum()
    assert chisquare(counts[replay.usable].numpy(), expected.double().numpy()).pvalue > 0.01
    assert chisquare(counts[replay.usable].numpy()).pvalue < 1e-9


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-53])
def test_extreme_random_numbers_draw_usable_steps(
    uniform: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = Episodes(1, 3, 0.0, 0.0)
    replay = Replay(episodes.spec, 1, 40, CPU, horizon=3, prioritized=True)
    replay.begin(episodes.obs())
    for _ in range(12):
        replay.add(*episodes.step())
    first, last = replay.usable[0].nonzero()[[0, -1], 0].tolist()
    assert (first, last) == (2, 11)  # neither the first slot nor the last
    number = torch.tensor([uniform], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda count, **_: number)
    indices = replay.draw(1, torch.Generator())
    assert indices.slots.tolist() == [first if uniform == 0 else last]


def test_a_new_step_gets_the_largest_priority_so_far() -> None:
    episodes = Episodes(1, 1, 0.0, 0.0)
    replay = Replay(episodes.spec, 1, 12, CPU, horizon=2, prioritized=True)
    replay.begin(episodes.obs())

    def add(count: int) -> None:
        for _ in range(count):
            replay.add(*episodes.step())

    def at(*slots: int) -> list[float]:
        assert replay.priority is not None
        return replay.priority[0, list(slots)].tolist()

    zeros = torch.zeros(2, dtype=torch.int64)
    add(4)
    replay.set_priority(Indices(zeros, torch.tensor([0, 1])), torch.tensor([5.0, 2.0]))
    add(1)
    assert at(0, 1, 2, 3, 4) == [5, 2, 1, 1, 5]
    replay.set_priority(Indices(zeros, torch.tensor([0, 2])), torch.tensor([3.0, 1.5]))
    add(1)
    assert at(0, 1, 2, 3, 4, 5) == [3, 2, 1.5, 1, 5, 5]  # 5 was the largest, though it was replaced
    replay.set_priority(Indices(zeros[:1], torch.tensor([4])), torch.tensor([1.0]))
    replay.reset_largest_priority()
    # The last step cannot be drawn yet: its 5 does not count.
    assert replay.largest_priority.item() == 3
    add(1)
    assert at(5, 6) == [5, 3]
