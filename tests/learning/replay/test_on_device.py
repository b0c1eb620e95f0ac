"""The replays of many runs as one hold and draw what plain lists of each run hold."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hadamard.envs.groups import join_steps
from hadamard.learning.replay import Replay
from hadamard.learning.replay.on_device import StackedDeviceReplay
from tests.support.naive_replay import EVENTS, NaiveReplay

CPU = torch.device("cpu")


def numbers_for(ranks: Tensor, count: int) -> Tensor:
    """Pairs of uniform numbers of 24 bits that choose these of so many: the middle of each."""
    middle = ((ranks.double() + 0.5) / count * 2.0**48).long()
    return torch.stack([middle >> 24, middle & (2**24 - 1)], -1).float() * 2.0**-24


@given(st.data())
def test_stacked_replays_hold_and_draw_what_lists_hold(data: st.DataObject) -> None:
    runs, num_envs = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    slots = data.draw(st.integers(4, 9))
    event = st.sampled_from(data.draw(st.sampled_from([EVENTS, ("continue",) * 6 + EVENTS])))
    naive = [NaiveReplay(num_envs, 1, action_size=2) for _ in range(runs)]
    members = [Replay(own.spec, num_envs, slots * num_envs, CPU) for own in naive]
    for own, member in zip(naive, members, strict=True):
        member.begin(own.obs())
    stack: StackedDeviceReplay | None = None
    alone = data.draw(st.integers(0, slots))
    for step_number in range(data.draw(st.integers(alone + 1, 3 * slots))):
        events = [[data.draw(event) for _ in range(num_envs)] for _ in range(runs)]
        moves = [own.step(happened) for own, happened in zip(naive, events, strict=True)]
        if step_number < alone:
            for member, move in zip(members, moves, strict=True):
                member.add(*move)
            continue
        stack = stack or StackedDeviceReplay(members)
        actions, steps = zip(*moves, strict=True)
        step = join_steps(steps)
        stack.store(torch.cat(actions), step.next_obs, step.obs, stack.pack(step))
        for run, (own, member) in enumerate(zip(naive, members, strict=True)):
            expected = own.draws(slots, 1)
            usable = [tuple(place) for place in member.usable.nonzero().tolist()]
            assert usable == sorted(expected)
            assert list(member.pushed) == own.pushed
            assert list(member.ages) == [len(episodes[-1]) for episodes in own.episodes]
            if not usable:
                continue
            draws = torch.zeros(runs, len(usable), 2)
            draws[run] = numbers_for(torch.arange(len(usable)), len(usable))
            if all(len(other) for other in members):
                batch = stack.sample(draws)
                for place, *values in zip(usable, *(value[run] for value in batch), strict=True):
                    (record,) = expected[place]
                    obs, drawn_action, reward, terminated, next_frame = values
                    assert obs.flatten().tolist() == record.obs
                    assert drawn_action.tolist() == record.action
                    assert reward.item() == record.reward
                    assert terminated.item() == record.terminated
                    assert next_frame.flatten().tolist() == record.next_obs
    # A run that leaves the stack goes on alone in the same memory.
    for own, member in zip(naive, members, strict=True):
        member.add(*own.step(["terminate"] * num_envs))
        usable = [tuple(place) for place in member.usable.nonzero().tolist()]
        assert usable == sorted(own.draws(slots, 1))


def test_draws_of_a_run_are_those_it_has_alone() -> None:
    draws = torch.rand(3, 50, 2)
    members = []
    for run in range(3):
        naive = NaiveReplay(1, 1, action_size=2)
        member = Replay(naive.spec, 1, 40, CPU)
        member.begin(naive.obs())
        for number in range(20 + 9 * run):
            member.add(*naive.step(["terminate" if number % 7 == run else "continue"]))
        members.append(member)
    alone = []
    for run, member in enumerate(members):
        alone.append(StackedDeviceReplay([member]).sample(draws[run : run + 1]))
    together = StackedDeviceReplay(members).sample(draws)
    for values, *own in zip(together, *alone, strict=True):
        assert torch.equal(values, torch.cat(own))
    assert not torch.equal(together.obs[0], together.obs[1])
