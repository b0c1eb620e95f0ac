"""SimbaV2 runs that act and learn as one computation are the runs that each would be alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.support.soft_actor_critic import (
    OBS,
    Alone,
    Play,
    agents_of,
    computation_of,
    state_of,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "relu": {},
    "tanh": {"net.activation": "tanh"},
    "hadamard relu": {"net.layer": "hadamard"},
    "hadamard tanh": {"net.layer": "hadamard", "net.activation": "tanh"},
    "hadamard2": {"net.layer": "hadamard2"},
    "widened": {"net.layer": "widened"},
    "crelu": {"net.layer": "crelu"},
    "one critic": {"algo.double_critic": False},
    "three environments": {"algo.num_envs": 3},
    "three updates a step": {"algo.updates_per_step": 3, "algo.actor_blocks": 2},
}
COUNT = 3


def assert_equal_states(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def assert_learns_as_alone(changes: dict[str, Any], rounds: int) -> None:
    """Compare everything that is saved, in double precision."""
    stacked, alone = (agents_of(COUNT, changes, torch.float64) for _ in range(2))
    starts = [copy.deepcopy(agent.network.state_dict()) for agent in alone]
    metrics = Play(stacked, range(COUNT), one_by_one=False).rounds(rounds)
    for seed, (ours, theirs) in enumerate(zip(stacked, alone, strict=True)):
        expected = Alone(theirs, seed).rounds(rounds)
        assert expected is not None
        assert theirs.counters["updates"] > 2
        assert metrics.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(metrics[name][seed], value, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(state_of(ours), state_of(theirs), rtol=1e-10, atol=1e-10)
        assert ours.schedules() == theirs.schedules()
        for name, weight in theirs.network.state_dict().items():
            assert weight.dtype == torch.float64
            assert not torch.equal(weight, starts[seed][name]), name


def test_hundreds_of_stacked_updates_equal_those_of_each_alone() -> None:
    assert_learns_as_alone({}, 150)  # 260 updates; the replay comes round


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_network_learns_in_a_stack_as_alone(variant: str) -> None:
    assert_learns_as_alone(VARIANTS[variant], 24)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_run_of_a_fleet_is_the_run_alone(num_envs: int) -> None:
    changes = {"algo.num_envs": num_envs}
    together, alone = (agents_of(COUNT, changes) for _ in range(2))
    Play(together, range(COUNT)).rounds(28 // num_envs)
    for seed in range(COUNT):
        Play([alone[seed]], [seed]).rounds(28 // num_envs)
        assert_equal_states(state_of(together[seed]), state_of(alone[seed]))


def test_runs_are_taken_out_of_a_fleet_and_put_together_again() -> None:
    agents, expected = agents_of(COUNT), agents_of(COUNT)
    play = Play(agents, range(COUNT))
    play.rounds(22)
    saved = [copy.deepcopy(state_of(agent)) for agent in agents]
    parts = [play_of(play, [1]), play_of(play, [2, 0])]
    for agent, state in zip(agents, saved, strict=True):  # nothing changed by moving
        assert_equal_states(state_of(agent), state)
    for part in parts:
        part.rounds(5)
    together = play_of(play, [0, 1, 2])
    together.step = parts[0].step
    together.rounds(3)
    Play(expected, range(COUNT)).rounds(30)
    for ours, theirs in zip(agents, expected, strict=True):
        assert_equal_states(state_of(ours), state_of(theirs))


def play_of(play: Play, seeds: list[int]) -> Play:
    """Go on with some runs of a fleet, in another order."""
    part = Play.__new__(Play)
    part.seeds, part.agents = seeds, [play.agents[seed] for seed in seeds]
    part.envs, part.step = [play.envs[seed] for seed in seeds], play.step
    part.computation = computation_of(part.agents, seeds)
    return part


def test_the_first_actions_are_uniform() -> None:
    agents = agents_of(
        2, {"algo.learning_starts": 10**6, "algo.num_envs": 50, "algo.replay_capacity": 5_000}
    )
    computation = Play(agents, range(2)).computation
    obs = torch.randn(2, 50, OBS)
    actions = torch.stack([computation.act(obs, 50 * step) for step in range(40)])
    assert -1 <= actions.min() < -0.99
    assert 0.99 < actions.max() <= 1
    assert abs(actions.mean()) < 0.03
    assert len(actions.unique()) > 0.99 * actions.numel()
    # The normalizers have seen the observations all the same.
    counts = [agent.network.normalizer.count.item() for agent in agents]
    assert counts == pytest.approx([2_000.0001] * 2)


def test_each_run_acts_greedily_with_its_own_weights() -> None:
    agents = agents_of(2)
    Play(agents, range(2)).rounds(22)
    obs = torch.randn(4, OBS)
    own = [copy.deepcopy(agent.network)(obs)[0] for agent in agents]
    for agent, expected in zip(agents, own, strict=True):
        torch.testing.assert_close(agent.act_greedily(obs), expected)
    assert not torch.equal(own[0], own[1])


def test_a_run_whose_weights_are_not_finite_is_known() -> None:
    agents = agents_of(3)
    play = Play(agents, range(3))
    play.rounds(21)
    assert play.computation.stack.finite().tolist() == [True, True, True]
    with torch.no_grad():
        agents[1].actor.mean.bias.fill_(torch.nan)
    metrics = play.rounds(2)
    assert play.computation.stack.finite().tolist() == [True, False, True]
    assert metrics["loss"].isfinite().tolist() == [True, False, True]
