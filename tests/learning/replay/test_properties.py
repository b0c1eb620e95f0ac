"""Whatever happens in the environments, the replay holds and draws what plain lists hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hadamard.learning.replay import Indices, Replay
from hadamard.learning.replay.sampling import _draw_by_weight
from tests.support.naive_replay import EVENTS, Event, NaiveReplay

CPU = torch.device("cpu")


@dataclass
class Script:
    """Sizes of a replay, and what happens in its environments step by step."""

    num_envs: int
    stack: int
    slots: int
    horizon: int
    action_size: int
    events: list[list[Event]]

    def start(self, **options: Any) -> tuple[NaiveReplay, Replay]:
        naive = NaiveReplay(self.num_envs, self.stack, self.action_size)
        capacity = self.slots * self.num_envs
        replay = Replay(naive.spec, self.num_envs, capacity, CPU, horizon=self.horizon, **options)
        assert replay.slots == self.slots
        replay.begin(naive.obs())
        return naive, replay


@st.composite
def scripts(draw: st.DrawFn, largest_horizon: int = 4) -> Script:
    num_envs, stack = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    horizon = draw(st.integers(1, largest_horizon))
    slots = max(4 * stack, 2 * horizon + stack) + draw(st.integers(0, 5))
    # Mostly ordinary steps, so that some episodes are longer than the horizon and the ring.
    event = st.sampled_from(draw(st.sampled_from([EVENTS, ("continue",) * 6 + EVENTS])))
    step = st.lists(event, min_size=num_envs, max_size=num_envs)
    # Of a chosen length, because lists are short by default: most rings are filled twice.
    length = draw(st.integers(1, 3 * slots))
    events = draw(st.lists(step, min_size=length, max_size=length))
    return Script(num_envs, stack, slots, horizon, draw(st.sampled_from([0, 2])), events)


def frame_numbers(obs: Tensor) -> list[int]:
    return obs.flatten().tolist()


@given(scripts())
def test_the_replay_holds_what_lists_hold(script: Script) -> None:
    naive, replay = script.start()
    for events in script.events:
        replay.add(*naive.step(events))
        expected = naive.draws(script.slots, script.horizon)
        usable = [(env, slot) for env, slot in replay.usable.nonzero().tolist()]
        assert sorted(usable) == sorted(expected)
        assert len(replay) == len(expected)
        assert replay.pushed == naive.pushed
        if not usable:
            continue
        indices = Indices(*torch.tensor(usable).T)
        obs = replay.observations(indices, 0, script.horizon + 1)
        next_obs = replay.observations(indices, 1, script.horizon)
        action, reward, terminated = replay.steps(indices, script.horizon)
        for i, key in enumerate(usable):
            for t, record in enumerate(expected[key]):
                assert frame_numbers(obs[i, t]) == record.obs
                assert frame_numbers(obs[i, t + 1]) == record.next_obs
                assert frame_numbers(next_obs[i, t]) == record.next_obs
                assert action[i, t].reshape(-1).tolist() == record.action
                assert reward[i, t].item() == record.reward
                assert terminated[i, t].item() == record.terminated


@given(scripts(largest_horizon=1), st.booleans(), st.integers(0, 2**32))
def test_samples_and_packed_batches_are_stored_transitions(
    script: Script, on_host: bool, seed: int
) -> None:
    naive, replay = script.start(on_host=on_host)
    for events in script.events:
        replay.add(*naive.step(events))
    expected = {tuple(steps[0].obs): steps[0] for steps in naive.draws(script.slots, 1).values()}
    if not expected:
        return
    batches = [replay.sample(20, torch.Generator().manual_seed(seed))]
    if script.action_size == 0:
        packed = replay.pack(replay.draw(20, torch.Generator().manual_seed(seed)))
        batches.append(replay.unpack(packed))
        assert all(map(torch.equal, *batches))
    for obs, action, reward, terminated, next_obs in zip(*batches[0], strict=True):
        record = expected[tuple(frame_numbers(obs))]
        assert action.reshape(-1).tolist() == record.action
        assert reward.item() == record.reward
        assert terminated.item() == record.terminated
        assert frame_numbers(next_obs) == record.next_obs


@given(scripts(largest_horizon=1), st.integers(1, 4), st.integers(0, 2**32))
def test_a_draw_ahead_is_the_draw_after_the_step_or_none(
    script: Script, count: int, seed: int
) -> None:
    naive, replay = script.start(on_host=True)
    ahead_generator, generator = (torch.Generator().manual_seed(seed) for _ in range(2))
    for events in script.events:
        ahead = replay.draw_ahead(count, ahead_generator) if len(replay) > 1 else None
        replay.add(*naive.step(events))
        if ahead is None:
            assert torch.equal(ahead_generator.get_state(), generator.get_state())
        else:
            assert all(map(torch.equal, ahead, replay.draw(count, generator)))
            assert torch.equal(ahead_generator.get_state(), generator.get_state())


@given(scripts(), st.data())
def test_priorities_are_those_of_a_dictionary(script: Script, data: st.DataObject) -> None:
    naive, replay = script.start(prioritized=True)
    assert replay.priority is not None
    priorities: dict[tuple[int, int], float] = {}
    largest = 1.0
    for events in script.events:
        slots = [(pushed - 1) % script.slots for pushed in naive.pushed]
        replay.add(*naive.step(events))
        priorities |= dict.fromkeys(enumerate(slots), largest)
        usable = sorted(naive.draws(script.slots, script.horizon))
        if usable and data.draw(st.booleans()):
            indices = replay.draw(4, torch.Generator().manual_seed(len(priorities)))
            keys = list(zip(*(index.tolist() for index in indices), strict=True))
            assert set(keys) <= set(usable)
            new = {key: float(data.draw(st.integers(1, 9))) for key in keys}
            replay.set_priority(indices, torch.tensor([new[key] for key in keys]))
            priorities |= new
            largest = max(largest, *new.values())
        if usable and data.draw(st.booleans()):
            replay.reset_largest_priority()
            largest = max(priorities[key] for key in usable)
        assert replay.largest_priority.item() == largest
        for (env, slot), priority in priorities.items():
            assert replay.priority[env, slot].item() == priority


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30).filter(any),
    st.integers(1, 50),
    st.integers(0, 2**32),
)
def test_weighted_draws_are_those_of_a_loop(weights: list[int], count: int, seed: int) -> None:
    weight = torch.tensor(weights, dtype=torch.float64)
    drawn = _draw_by_weight(weight, count, torch.Generator().manual_seed(seed))
    uniform = torch.rand(
        count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).tolist()
    for index, number in zip(drawn.tolist(), uniform, strict=True):
        rest = number * sum(weights)
        expected = 0
        while rest >= weights[expected]:
            rest -= weights[expected]
            expected += 1
        assert index == expected
