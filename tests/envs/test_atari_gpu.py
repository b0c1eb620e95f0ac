"""Atari's frames stacked on a GPU are those stacked on the CPU. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch

from hadamard import envs
from tests.support.gpu import DEVICE

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("atari_reset", ["cleanrl", "envpool"])
def test_stacks_on_the_gpu_equal_those_on_the_cpu(workers: int, atari_reset: str) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    random = torch.Generator().manual_seed(0)
    batches = [
        envs.make("atari/Breakout", 5, 4, device, workers=workers, atari_reset=atari_reset)
        for device in ("cpu", DEVICE)
    ]
    assert torch.equal(*(batch.reset().cpu() for batch in batches))
    ended = 0
    for _ in range(400):
        action = torch.randint(4, (4,), generator=random)
        on_cpu, on_gpu = (batch.step(action) for batch in batches)
        assert on_gpu.obs.device.type == DEVICE.type
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(on_cpu, name), getattr(on_gpu, name).cpu())
        ended += len(on_cpu.episodes)
    assert ended > 0
    for batch in batches:
        batch.close()
