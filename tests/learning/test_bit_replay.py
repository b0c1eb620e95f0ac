"""Replays of bits hold and draw what plain lists hold."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hadamard.core.checkpoint import CheckpointError
from hadamard.core.types import EnvSpec
from hadamard.learning.replay.bits import BitReplay, StackedBitReplay, pack_bits, unpack_bits
from hadamard.learning.replay.packing import Batch

CPU = torch.device("cpu")
ENV = EnvSpec((3, 2, 3), torch.uint8, 6)  # 18 bits: two bytes and a part of a third
FIELDS = Batch._fields


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=3))
def test_bits_are_packed_and_unpacked(rows: list[list[int]]) -> None:
    count = min(map(len, rows))
    planes = torch.tensor([row[:count] for row in rows], dtype=torch.uint8)
    packed = pack_bits(planes)
    assert packed.dtype == torch.uint8
    assert packed.shape == (len(rows), math.ceil(count / 8))
    for row, values in zip(packed.tolist(), planes.tolist(), strict=True):
        number = sum(byte << 8 * place for place, byte in enumerate(row))
        assert number == sum(bit << place for place, bit in enumerate(values))
    unpacked = unpack_bits(packed, count)
    assert unpacked.dtype == torch.uint8
    assert torch.equal(unpacked, planes)


def step_of(runs: int, games: int, generator: torch.Generator) -> Batch:
    """One random transition of every game, each value (runs, games, ...)."""
    shape = runs, games
    obs, next_obs = torch.randint(2, (2, *shape, *ENV.obs_shape), generator=generator)
    return Batch(
        obs.to(torch.uint8),
        torch.randint(ENV.num_actions, shape, generator=generator),
        torch.randn(shape, generator=generator),
        torch.rand(shape, generator=generator) < 0.3,
        next_obs.to(torch.uint8),
    )


def transition(batch: Batch, *place: int) -> list[Any]:
    return [value[place].tolist() for value in batch]


class NaiveReplay:
    """The newest transitions as a list, each in the slot it has in a ring."""

    def __init__(self, capacity: int) -> None:
        self.slots: list[Any] = [None] * capacity
        self.written = 0

    def store(self, transition: list[Any]) -> None:
        self.slots[self.written % len(self.slots)] = transition
        self.written += 1

    @property
    def filled(self) -> list[Any]:
        return [transition for transition in self.slots if transition is not None]


def numbers_for(slots: Tensor, filled: int) -> Tensor:
    """Pairs of uniform numbers of 24 bits that choose these slots: the middle of each."""
    middle = ((slots.double() + 0.5) / filled * 2.0**48).long()
    pair = torch.stack([middle >> 24, middle & (2**24 - 1)], -1)
    return pair.float() * 2.0**-24


@given(
    runs=st.integers(1, 3),
    games=st.integers(1, 3),
    capacity=st.integers(3, 9),
    steps=st.integers(1, 12),
    seed=st.integers(0, 2**20),
)
def test_the_replays_hold_what_lists_hold(
    runs: int, games: int, capacity: int, steps: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    members = [BitReplay(ENV, capacity, CPU) for _ in range(runs)]
    stack = StackedBitReplay(members)
    naive = [NaiveReplay(capacity) for _ in range(runs)]
    for _ in range(steps):
        batch = step_of(runs, games, generator)
        stack.store(batch)
        for run, own in enumerate(naive):
            for game in range(games):
                own.store(transition(batch, run, game))
    filled = len(naive[0].filled)
    assert filled == min(capacity, steps * games)
    for run, member in enumerate(members):
        assert int(member.written) == naive[run].written
        assert len(member.state_dict()["obs"]) == filled
    slots = torch.arange(filled).expand(runs, filled)
    batch = stack.sample(numbers_for(slots, filled))
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert batch.action.dtype == torch.int64
    for run, own in enumerate(naive):
        assert [transition(batch, run, slot) for slot in range(filled)] == own.filled


def test_replays_that_were_filled_before_are_stacked_as_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    members = [BitReplay(ENV, 5, CPU) for _ in range(2)]
    naive = [NaiveReplay(5) for _ in range(2)]
    for member, own, steps in zip(members, naive, (3, 7), strict=True):
        for _ in range(steps):
            batch = step_of(1, 1, generator)
            StackedBitReplay([member]).store(batch)
            own.store(transition(batch, 0, 0))
    stack = StackedBitReplay(members)
    batch = step_of(2, 1, generator)
    stack.store(batch)
    for run, own in enumerate(naive):
        own.store(transition(batch, run, 0))
    assert stack.written.flatten().tolist() == [4, 8]
    batch = stack.sample(torch.stack([numbers_for(torch.arange(5) % n, n) for n in (4, 5)]))
    for run, own in enumerate(naive):
        count = len(own.filled)
        assert [transition(batch, run, slot) for slot in range(count)] == own.filled


def test_sampling_reaches_all_filled_slots_equally_and_no_other() -> None:
    capacity = 50
    stack = StackedBitReplay([BitReplay(ENV, capacity, CPU) for _ in range(2)])
    generator = torch.Generator().manual_seed(0)
    for filled in (1, 20, 50, 50):
        while int(stack.written[0]) < filled:
            batch = step_of(2, 1, generator)
            slot = stack.written[0] % capacity
            stack.store(batch._replace(reward=slot.float().expand(2, 1)))
        draws = torch.rand(2, 400 * filled, 2, generator=generator)
        for rewards in stack.sample(draws).reward:
            counts = rewards.long().bincount(minlength=capacity)
            assert not counts[filled:].any()
            assert (counts[:filled] > 300).all()
            assert (counts[:filled] < 500).all() or filled == 1
    ends = torch.tensor([[0.0, 0.0], [1 - 2.0**-24, 1 - 2.0**-24]]).expand(2, 2, 2)
    assert stack.sample(ends).reward.tolist() == [[0.0, 49.0]] * 2


def test_a_draw_uses_the_bits_of_both_numbers() -> None:
    stack = StackedBitReplay([BitReplay(ENV, 3, CPU)])
    for slot in range(3):
        batch = step_of(1, 1, torch.Generator().manual_seed(0))
        stack.store(batch._replace(reward=torch.tensor([[float(slot)]])))
    first = 5_592_405 * 2.0**-24  # a little below a third
    draws = torch.tensor([[[first, 0.0], [first, 0.3], [first, 0.4], [first, 0.9]]])
    assert stack.sample(draws).reward.tolist() == [[0.0, 0.0, 1.0, 1.0]]


def test_a_replay_is_saved_and_restored() -> None:
    generator = torch.Generator().manual_seed(0)
    for steps in (0, 3, 9):
        members = [BitReplay(ENV, 5, CPU) for _ in range(2)]
        stack = StackedBitReplay(members)
        for _ in range(steps):
            stack.store(step_of(2, 1, generator))
        saved = copy.deepcopy(members[1].state_dict())
        assert len(saved["obs"]) == min(steps, 5)
        restored = BitReplay(ENV, 5, CPU)
        restored.load_state_dict(saved)
        # What is stored next, and where, is equal too.
        both = StackedBitReplay([restored]), StackedBitReplay([members[1]])
        batch = step_of(1, 1, generator)
        for replay in both:
            replay.store(batch)
        assert torch.equal(restored.written, members[1].written)
        for name in FIELDS:
            assert torch.equal(restored.tensors[name], members[1].tensors[name]), name


def test_a_replay_of_another_size_is_refused() -> None:
    member = BitReplay(ENV, 5, CPU)
    stack = StackedBitReplay([member])
    for _ in range(7):
        stack.store(step_of(1, 1, torch.Generator().manual_seed(0)))
    with pytest.raises(CheckpointError, match="holds 5 transitions, .* capacity of 6 and 7 steps"):
        BitReplay(ENV, 6, CPU).load_state_dict(member.state_dict())
    with pytest.raises(CheckpointError, match="holds 5 transitions, .* capacity of 4"):
        BitReplay(ENV, 4, CPU).load_state_dict(member.state_dict())
    state = member.state_dict()
    with pytest.raises(CheckpointError, match="and 3 steps"):
        BitReplay(ENV, 5, CPU).load_state_dict({**state, "written": torch.tensor([3])})
