"""Open, play and compare environments of any suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from hadamard.core.types import Envs, Step
from hadamard.envs import make, minatar
from hadamard.envs.common import environment_seeds

PLAIN = (dict, list, torch.Tensor, np.ndarray, int, float, bool, str, type(None))


@contextmanager
def open_envs(name: str, seed: int = 0, num_envs: int = 3, **options: Any) -> Iterator[Envs]:
    envs = make(name, seed, num_envs, **options)
    try:
        yield envs
    finally:
        envs.close()


def play(envs: Envs, steps: int, seed: int = 0) -> list[Step]:
    random = torch.Generator().manual_seed(seed)
    return [envs.step(random_action(envs, random)) for _ in range(steps)]


def random_action(envs: Envs, random: torch.Generator) -> torch.Tensor:
    if envs.spec.continuous:
        return 2 * torch.rand(envs.num_envs, envs.spec.action_size, generator=random) - 1
    return torch.randint(envs.spec.num_actions, (envs.num_envs,), generator=random)


def assert_same(left: list[Step], right: list[Step]) -> None:
    assert len(left) == len(right)
    for step, (a, b) in enumerate(zip(left, right, strict=True)):
        assert torch.equal(a.obs, b.obs), step
        assert torch.equal(a.next_obs, b.next_obs), step
        assert torch.equal(a.reward, b.reward), step
        assert torch.equal(a.terminated, b.terminated), step
        assert torch.equal(a.truncated, b.truncated), step
        assert a.episodes == b.episodes, step


def assert_plain(state: Any) -> None:
    assert isinstance(state, PLAIN), type(state)
    if isinstance(state, dict):
        assert all(type(key) is str for key in state)
        for value in state.values():
            assert_plain(value)
    elif isinstance(state, list):
        for value in state:
            assert_plain(value)
    else:
        assert not isinstance(state, np.generic)
        assert not isinstance(state, np.ndarray) or state.dtype != object


def check_parts(workers: Envs, kind: str) -> None:
    """Check five environments with seed 3 that are held in two parts of three and two."""
    seeds = environment_seeds(3, 5)
    parts = [minatar.make("asterix", seeds[:3], 3), minatar.make("asterix", seeds[3:], 2)]
    assert workers.spec == parts[0].spec
    assert workers.exact

    def joined(steps: list[Step], name: str) -> torch.Tensor:
        return torch.cat([getattr(step, name) for step in steps])

    assert torch.equal(workers.reset(), torch.cat([part.reset() for part in parts]))
    random = torch.Generator().manual_seed(0)
    ended = 0
    saved: Any = None
    steps_after_save = []
    for round in range(300):
        action = torch.randint(5, (5,), generator=random)
        workers.send(action)
        steps = [parts[0].step(action[:3]), parts[1].step(action[3:])]
        step = workers.receive()
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(step, name), joined(steps, name)), name
        expected = [*steps[0].episodes]
        expected += [e._replace(env=e.env + 3) for e in steps[1].episodes]
        assert list(step.episodes) == expected
        ended += len(expected)
        if round == 250:
            saved = workers.state_dict()
            assert_plain(saved)
        elif round > 250:
            steps_after_save.append(step)
    assert ended
    obs = workers.load_state_dict(saved)
    assert obs is not None
    random = torch.Generator().manual_seed(0)
    actions = [torch.randint(5, (5,), generator=random) for _ in range(300)]
    assert_same(steps_after_save, [workers.step(action) for action in actions[251:]])
    if kind == "groups":
        with pytest.raises(ValueError, match="groups=1"):
            workers.load_state_dict({kind: saved[kind][:1]})
    else:  # two workers save the same state as one process
        single = minatar.make("asterix", 7, 5)
        assert torch.equal(single.load_state_dict(saved), obs)
        assert_same(steps_after_save, [single.step(action) for action in actions[251:]])
        # Earlier versions saved the workers' states separately.
        states = [part.state_dict() for part in parts]
        single = minatar.make("asterix", 7, 5)
        obs = workers.load_state_dict({"workers": states})
        assert torch.equal(obs, single.load_state_dict(workers.state_dict()))
    with pytest.raises(RuntimeError, match="without send"):
        workers.receive()
