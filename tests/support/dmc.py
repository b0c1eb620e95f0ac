"""Open, play and compare environments of DeepMind Control."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hadamard.core.types import Step
from hadamard.envs import make


@contextmanager
def open_envs(name: str, seed: int = 0, num_envs: int = 1, **options: Any) -> Iterator[Any]:
    envs = make(name, seed, num_envs, **options)
    try:
        yield envs
    finally:
        envs.close()


def actions(size: int, steps: int, seed: int = 0, num_envs: int = 1) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, num_envs, size, generator=random) - 1


def play(envs: Any, steps: int, seed: int = 0) -> list[Step]:
    size, num_envs = envs.spec.action_size, envs.num_envs
    return [envs.step(action) for action in actions(size, steps, seed, num_envs)]


def assert_same(left: list[Step], right: list[Step]) -> None:
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.next_obs, b.next_obs)
        assert torch.equal(a.reward, b.reward)
        assert torch.equal(a.truncated, b.truncated)
        assert a.episodes == b.episodes
