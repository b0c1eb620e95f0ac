"""The replay holds exactly the transitions that were not overwritten, and draws uniformly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hadamard.core.types import EnvSpec
from hadamard.learning.replay import Batch, Replay, capacity_for
from tests.support.replay import Transitions, sample_all

CPU = torch.device("cpu")


def content(batch: Batch, stream: Transitions) -> list[tuple[Any, ...]]:
    """Return the transitions of a batch, with the numbers of their frames."""

    def numbers(obs: Tensor) -> list[int]:
        stack = (obs.flatten().view(stream.stack, 4)[:, 0] // 4).tolist()
        assert torch.equal(stream.picture(stack), obs)
        return stack

    return [
        (numbers(batch.obs[i]), int(a), float(r), bool(t), numbers(batch.next_obs[i]))
        for i, (a, r, t) in enumerate(
            zip(batch.action, batch.reward, batch.terminated, strict=True)
        )
    ]


def test_a_replay_without_transitions_says_how_long_episodes_must_be() -> None:
    stream = Transitions(1, 1, resets=0.0, limits=0.0, lives=0.0)
    replay = Replay(stream.spec, 1, 20, CPU, horizon=2)
    replay.begin(stream.obs())
    for _ in range(2):
        with pytest.raises(ValueError, match="no episode has lasted the 2 steps of a draw yet"):
            replay.require_drawable()
        replay.add(*stream.step())
    replay.require_drawable()


def test_what_draws_by_priority_read_is_there_only_with_priorities() -> None:
    spec = Transitions(1, 1).spec
    plain, prioritized = (Replay(spec, 1, 20, CPU, prioritized=flag) for flag in (False, True))
    assert plain.priorities == ()
    priority, largest = prioritized.priorities
    assert priority is prioritized.priority
    assert largest is prioritized.largest_priority


@pytest.mark.parametrize(
    ("stack", "num_envs", "slots", "habits"),
    [
        (4, 1, 40, {}),
        (4, 3, 16, {}),
        (1, 3, 7, {}),
        (4, 2, 17, {"resets": 0.7}),  # most episodes are one step long
        (2, 2, 9, {"resets": 0.0, "limits": 0.4}),
        (4, 2, 16, {"resets": 0.0, "limits": 0.0, "lives": 0.5}),
    ],
)
def test_replay_holds_all_transitions_that_are_not_overwritten(
    stack: int, num_envs: int, slots: int, habits: dict[str, float]
) -> None:
    stream = Transitions(num_envs, stack, **habits)
    replay = Replay(stream.spec, num_envs, slots * num_envs + num_envs - 1, CPU)
    assert replay.slots == slots
    replay.begin(stream.obs())
    for _ in range(5 * slots):
        replay.add(*stream.step())
        indices, batch = sample_all(replay)
        expected = sorted(stream.stored(slots))
        assert indices == [(env, slot) for env, slot, _ in expected]
        assert content(batch, stream) == [transition for _, _, transition in expected]
        assert len(replay) == len(expected)
    assert max(len(frames) for frames in stream.frames) > 4 * slots


class Copies(TorchDispatchMode):
    """Counts copies of single numbers, each of which would wait for a GPU."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is torch.ops.aten.copy_.default and args[1].dim() == 0:
            self.count += 1
        return func(*args, **(kwargs or {}))


def test_storing_a_step_copies_no_single_numbers() -> None:
    stream = Transitions(2, 4)
    replay = Replay(stream.spec, 2, 60, CPU)
    replay.begin(stream.obs())
    with Copies() as copies:
        replay.reward[0, 0] = 1.0
        assert copies.count == 1
        for _ in range(50):
            replay.add(*stream.step())
    assert copies.count == 1


def test_sampled_stacks_are_those_of_the_environment() -> None:
    stream = Transitions(2, 4)
    replay = Replay(stream.spec, 2, 60, CPU)
    replay.begin(stream.obs())
    generator = torch.Generator().manual_seed(3)
    for step in range(90):
        replay.add(*stream.step())
        if step % 10 == 9:
            batch = replay.sample(64, generator)
            assert batch.obs.shape == (64, *stream.spec.obs_shape)
            stored = [transition for _, _, transition in stream.stored(30)]
            assert all(transition in stored for transition in content(batch, stream))


def test_transitions_are_drawn_uniformly() -> None:
    stream = Transitions(3, 4)
    replay = Replay(stream.spec, 3, 90, CPU)
    replay.begin(stream.obs())
    for _ in range(55):
        replay.add(*stream.step())
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(3, 30)
    for _ in range(20):
        envs, slots = replay.draw(2_000, generator)
        counts.index_put_((envs, slots), torch.ones(2_000), accumulate=True)
    assert not counts[~replay.usable].any()
    per_env = replay.usable.sum(1)
    assert (
        len(set(per_env.tolist())) > 1
    )  # an environment with fewer transitions must be drawn less often
    assert chisquare(counts[replay.usable].numpy()).pvalue > 0.01


@pytest.mark.parametrize(
    ("stack", "num_envs", "slots", "habits"),
    [(4, 1, 60, {"resets": 0.2}), (1, 1, 12, {}), (4, 3, 40, {"resets": 0.1, "limits": 0.1})],
)
def test_a_draw_ahead_equals_the_draw_after_the_step(
    stack: int, num_envs: int, slots: int, habits: dict[str, float]
) -> None:
    stream = Transitions(num_envs, stack, **habits)
    replay = Replay(stream.spec, num_envs, slots * num_envs, CPU, on_host=True)
    replay.begin(stream.obs())
    ahead_generator, generator = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(8):
        replay.add(*stream.step())
    draws_ahead = 0
    for _ in range(6 * slots):
        ahead = replay.draw_ahead(2, ahead_generator)
        usable = replay.usable.clone()
        if ahead is None:
            assert torch.equal(ahead_generator.get_state(), generator.get_state())
        else:
            batch_ahead = replay.unpack(replay.pack(ahead))
        replay.add(*stream.step())
        indices = replay.draw(2, generator)
        if ahead is None:
            replay.draw(2, ahead_generator)
        else:
            draws_ahead += 1
            assert usable[indices.envs, indices.slots].all()
            assert all(map(torch.equal, ahead, indices))
            assert all(map(torch.equal, batch_ahead, replay.unpack(replay.pack(indices))))
        assert torch.equal(ahead_generator.get_state(), generator.get_state())
    assert 0 < draws_ahead < 6 * slots


def test_unpacked_transitions_equal_sampled_ones() -> None:
    stream = Transitions(2, 4)
    replay = Replay(stream.spec, 2, 60, CPU, on_host=True)
    replay.begin(stream.obs())
    for _ in range(40):
        replay.add(*stream.step())
    packed = replay.pack(replay.draw(64, torch.Generator().manual_seed(1)))
    assert packed.shape == (5, 64)
    sampled = replay.sample(64, torch.Generator().manual_seed(1))
    for tensor, expected in zip(replay.unpack(packed), sampled, strict=True):
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)


def test_an_empty_or_too_small_replay_raises() -> None:
    stream = Transitions(2, 4)
    with pytest.raises(
        ValueError, match="replay-capacity: 31 steps of 2 environments are too few.* 32 are"
    ):
        Replay(stream.spec, 2, 31, CPU)
    replay = Replay(stream.spec, 2, 32, CPU)
    with pytest.raises(RuntimeError, match="holds 0 transitions: too few to sample from"):
        replay.draw_ahead(1, torch.Generator())
    replay.begin(stream.obs())
    with pytest.raises(RuntimeError, match="holds 0 transitions: too few to sample from"):
        replay.sample(1, torch.Generator())


def test_frames_on_disk_equal_frames_in_memory(tmp_path: Path) -> None:
    streams = Transitions(2, 4), Transitions(2, 4)
    folder = tmp_path / "run"
    replays = [
        Replay(streams[0].spec, 2, 50, CPU, "memory"),
        Replay(streams[1].spec, 2, 50, CPU, "disk", folder),
    ]
    assert list(folder.iterdir()) == []  # the file is unlinked at once
    for replay, stream in zip(replays, streams, strict=True):
        replay.begin(stream.obs())
        for _ in range(80):
            replay.add(*stream.step())
    memory, disk = (replay.sample(200, torch.Generator().manual_seed(1)) for replay in replays)
    assert all(map(torch.equal, memory, disk))


def test_a_short_run_reserves_no_more_than_it_fills() -> None:
    assert capacity_for(1_000_000, steps=10_000_000, num_envs=8) == 1_000_000
    assert capacity_for(1_000_000, steps=500, num_envs=8) == 1_512


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_million_atari_transitions_fit_in_seven_gigabytes() -> None:
    before = resident_bytes()
    replay = Replay(EnvSpec((4, 84, 84), torch.uint8, 6, 4), 1, 1_000_000, CPU)
    assert 1_000_000 * 84 * 84 < replay.nbytes <= 7.2e9
    assert replay.action.numel() == 1_000_000
    assert resident_bytes() - before < 0.1e9  # unwritten frames take no memory
