"""Replays of several runs that are stored in and drawn from at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hadamard.core.types import Step
from hadamard.envs.groups import join_steps
from hadamard.learning.replay import Replay
from hadamard.learning.replay.stacked import DRAWS, StackedReplay
from tests.support.replay import Transitions, sample_all

CPU = torch.device("cpu")
LARGEST = 1 - 2.0**-24


def replay_of(world: Transitions, slots: int) -> Replay:
    return Replay(world.spec, world.num_envs, slots * world.num_envs, CPU, on_host=True)


def stacked(members: list[Replay]) -> StackedReplay:
    return StackedReplay(members, CPU, capture=False)


def begun(worlds: list[Transitions], slots: int) -> list[Replay]:
    members = [replay_of(world, slots) for world in worlds]
    for member, world in zip(members, worlds, strict=True):
        member.begin(world.obs())
    return members


def step_all(worlds: list[Transitions]) -> tuple[list[Tensor], list[Step]]:
    pairs = [world.step() for world in worlds]
    return [action for action, _ in pairs], [step for _, step in pairs]


def expected(world: Transitions, env: int, step: int) -> tuple[Any, ...]:
    _, (stack, action, reward, terminated, next_stack) = world.transitions[env][step]
    pictures = [world.picture(frames).tolist() for frames in (stack, next_stack)]
    return pictures[0], action, reward, terminated, pictures[1]


def part_of(stack: StackedReplay, step: Step, present: Any) -> Step:
    """The part of a step that some environments have made; the others stand still."""
    obs = step.obs.clone()
    for row in np.flatnonzero(~present):
        member, env = divmod(int(row), stack.num_envs)
        ring = stack.members[member]
        newest = (int(ring.pushed[env]) - 1) % ring.slots
        obs[row, -stack.channels :] = ring.frames[env, newest]
    final = [] if step.final_index is None else step.final_index.tolist()
    ended = [place for place, env in enumerate(final) if present[env]]
    whole = step.final_obs is None or not ended
    return Step(
        obs,
        step.reward,
        step.terminated,
        step.truncated,
        None if step.final_index is None or not ended else step.final_index[ended],
        None if step.final_obs is None or whole else step.final_obs[ended],
        present=present,
    )


def assert_stored(stack: StackedReplay, worlds: list[Transitions], drawn: Any) -> None:
    frames, action, reward, terminated = stack.batch(drawn)
    obs, next_obs = stack.observations(frames)
    for place in np.ndindex(drawn.rows.shape):
        run, env = divmod(int(drawn.rows[place]), stack.num_envs)
        assert run == place[0]
        values = obs, action, reward, terminated, next_obs
        ours = tuple(value[place].tolist() for value in values)
        assert ours == expected(worlds[run], env, int(drawn.steps[place]))


@given(
    runs=st.integers(1, 3),
    envs=st.integers(1, 3),
    frames=st.integers(1, 3),
    extra=st.integers(0, 20),
    steps=st.integers(1, 50),
    seed=st.integers(0, 2**20),
)
def test_what_is_drawn_before_a_step_is_stored_after_it(
    runs: int, envs: int, frames: int, extra: int, steps: int, seed: int
) -> None:
    """Whatever the step in flight overwrites, and the same replays as those of single runs."""
    slots = max(4 * frames, 2 + frames) + extra
    worlds = [Transitions(envs, frames, seed + run) for run in range(runs)]
    singles, members = begun(worlds, slots), begun(worlds, slots)
    stack, rng = stacked(members), np.random.default_rng(seed)
    for number in range(steps):
        uniforms = rng.integers(0, 2**24, (runs, 6, DRAWS)) * 2.0**-24
        uniforms[:, 0, 1:], uniforms[:, 1, 1:] = LARGEST, 0
        drawn = stack.draw(uniforms, np.ones(runs * envs, dtype=bool))
        newest = drawn.steps == number
        assert newest[:, 0].all()
        assert stack.holds(drawn) == (not newest.any())
        actions, outcomes = step_all(worlds)
        action, step = torch.cat(actions), join_steps(outcomes)
        early = rng.random(runs * envs) < 0.5
        for present, in_flight in ((early, ~early), (~early, early & ~early)):
            # Some environments are ahead of others; an update draws the same.
            stack.store(action, part_of(stack, step, present))
            again = stack.draw(uniforms, in_flight)
            assert np.array_equal(again.rows, drawn.rows)
            assert np.array_equal(again.steps, drawn.steps)
        for single, action, step in zip(singles, actions, outcomes, strict=True):
            single.add(action, step)
        assert stack.holds(drawn)
        assert_stored(stack, worlds, drawn)
        for single, member in zip(singles, members, strict=True):
            assert list(single.pushed) == list(member.pushed)
            assert list(single.ages) == list(member.ages)
            places, batch = sample_all(single)
            own_places, own_batch = sample_all(member)
            assert places == own_places
            assert all(map(torch.equal, batch, own_batch))


def test_all_transitions_are_equally_likely() -> None:
    world = Transitions(2, 2)
    stack = stacked(begun([world], 40))
    for _ in range(20):
        action, step = world.step()
        stack.store(action, step)
    rng = np.random.default_rng(0)
    drawn = stack.draw(
        rng.integers(0, 2**24, (1, 42_000, DRAWS)) * 2.0**-24, np.ones(2, dtype=bool)
    )
    counts = np.bincount((drawn.rows * 21 + drawn.steps)[0], minlength=42)
    assert len(counts) == 42
    assert counts.min() > 850
    assert counts.max() < 1_150


@pytest.mark.parametrize("steps", [4, 30])
def test_saved_replays_go_on_with_the_same_draws(steps: int, tmp_path: Path) -> None:
    worlds = [Transitions(2, 2, seed) for seed in range(2)]
    members = begun(worlds, 14)
    stack = stacked(members)
    for _ in range(steps):
        actions, outcomes = step_all(worlds)
        stack.store(torch.cat(actions), join_steps(outcomes))
    restored = [replay_of(world, 14) for world in worlds]
    for number, (member, other) in enumerate(zip(members, restored, strict=True)):
        state = member.save_increment(tmp_path / str(number))
        assert all(type(count) is int for count in state["pushed"] + state["ages"])
        other.load_increment(tmp_path / str(number), state)
    # One of them goes on alone, the other in another order.
    parts = stacked(restored[1:]), stacked(restored[:1])
    for _ in range(20):
        uniforms = np.random.default_rng(0).integers(0, 2**24, (2, 8, DRAWS)) * 2.0**-24
        drawn = stack.draw(uniforms, np.ones(4, dtype=bool))
        one = np.ones(2, dtype=bool)
        own = [parts[1].draw(uniforms[:1], one), parts[0].draw(uniforms[1:], one)]
        actions, outcomes = step_all(worlds)
        stack.store(torch.cat(actions), join_steps(outcomes))
        for part, run in zip(parts, (1, 0), strict=True):
            part.store(actions[run], outcomes[run])
        together = stack.batch(drawn)
        for run, part in ((1, parts[0]), (0, parts[1])):
            for ours, theirs in zip(part.batch(own[run]), together, strict=True):
                assert torch.equal(ours[0], theirs[run])
