"""A replay on the GPU holds and draws the same as one in memory. Needs a CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.compute.jit import Captured
from hadamard.core.types import EnvSpec, Step
from hadamard.learning.replay import Indices, Replay
from tests.support.gpu import DEVICE
from tests.support.updates import agent_of

pytestmark = pytest.mark.gpu

FRAMES = EnvSpec((4, 12, 12), torch.uint8, 3, frames=4)


def filled(storage: Any, steps: int) -> Replay:
    """Return a replay after steps of two environments, with resets and a wrap-around."""
    draw = torch.Generator().manual_seed(0)

    def observations() -> torch.Tensor:
        shape = (2, *FRAMES.obs_shape)
        return torch.randint(256, shape, dtype=torch.uint8, generator=draw).to(DEVICE)

    replay = Replay(FRAMES, 2, 128, DEVICE, storage)
    replay.begin(observations())
    for t in range(steps):
        ended = torch.tensor([t % 2]) if t % 7 == 6 else None
        step = Step(
            obs=observations(),
            reward=torch.rand(2, generator=draw).to(DEVICE),
            terminated=torch.tensor([t % 5 == 0, t % 7 == 6], device=DEVICE),
            truncated=torch.zeros(2, dtype=torch.bool, device=DEVICE),
            final_index=ended,
            final_obs=None if ended is None else observations()[:1],
        )
        replay.add(torch.randint(3, (2,), generator=draw), step)
    return replay


def test_frames_on_the_gpu_equal_frames_in_memory(tmp_path: Path) -> None:
    memory, device = filled("memory", 150), filled("device", 150)
    assert device.frames.device.type == DEVICE.type
    state = device.save_increment(tmp_path)
    restored = Replay(FRAMES, 2, 128, DEVICE, "device")
    restored.load_increment(tmp_path, state)
    for seed in range(20):
        indices = device.draw(32, torch.Generator().manual_seed(seed))
        on_cpu = Indices(indices.envs.cpu(), indices.slots.cpu())
        assert bool(memory.usable[on_cpu.envs, on_cpu.slots].all())
        batches = [
            (replay.observations(where, 0, 2), *replay.steps(where, 1))
            for replay, where in ((memory, on_cpu), (device, indices), (restored, indices))
        ]
        for expected, from_device, from_restored in zip(*batches, strict=True):
            assert expected.device.type == from_device.device.type == DEVICE.type
            assert torch.equal(expected, from_device)
            assert torch.equal(expected, from_restored)
    assert torch.equal(memory.usable, device.usable.cpu())


def test_frames_in_memory_are_drawn_by_a_generator_on_the_gpu() -> None:
    replay = filled("memory", 150)
    first, same, other = (
        replay.draw(64, torch.Generator(DEVICE).manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert bool(replay.usable[first.envs, first.slots].all())
    assert torch.equal(first.slots, same.slots)
    assert not torch.equal(first.slots, other.slots)


def test_captured_fetching_equals_eager_fetching() -> None:
    changes = {"net.width": 32, "algo.replay_capacity": 512}
    slow = {**changes, "train.capture": False}
    fast, eager = (agent_of("dqn", torch.float32, c, DEVICE) for c in (changes, slow))
    assert not isinstance(eager.fetch, Captured)
    assert isinstance(fast.fetch, Captured)
    for agent in (fast, eager):
        replay = agent.replay
        assert replay.frames.device.type == DEVICE.type
        assert replay.reward.device.type == replay.usable.device.type == "cpu"
        replay.frames.random_(generator=torch.Generator(DEVICE).manual_seed(0))
        for tensor in (replay.action, replay.reward):
            tensor.random_(3, generator=torch.Generator().manual_seed(1))
        replay.terminated[:, ::3] = True
        replay.usable[:, 100:200] = True
        replay.pushed, replay.ages = [220], [50]
    for update in range(20):
        packed = [
            a.replay.pack(a.replay.draw(32, a.sampling_random.generator)) for a in (fast, eager)
        ]
        assert torch.equal(*packed)
        batches = fast.fetch(packed[0]), eager.fetch(packed[1])
        for name in batches[1]:
            assert batches[0][name].device.type == DEVICE.type
            assert torch.equal(batches[0][name], batches[1][name])
        for agent in (fast, eager):  # the next batches hold new frames
            agent.replay.frames[:, 100 + update] = update
