"""The probe tasks have the values they state."""

from __future__ import annotations

import pytest
import torch

from hadamard.envs import make
from tests.support.environments import play


def test_rewards() -> None:
    ones = torch.ones(64, dtype=torch.long)
    for task, expected in {"constant": 1.0, "action": 1.0}.items():
        envs = make(f"probe/{task}", 0, 64)
        envs.reset()
        step = envs.step(ones)
        assert (step.reward == expected).all()
        assert step.terminated.all()
    assert (make("probe/action", 0, 64).step(0 * ones).reward == -1).all()
    for task in ("observed", "both"):
        envs = make(f"probe/{task}", 0, 64)
        side = envs.reset()[:, 0]
        assert set(side.tolist()) == {-1.0, 1.0}
        right = (side > 0).long()
        assert torch.equal(envs.step(right).reward, side if task == "observed" else side.abs())
    envs = make("probe/delayed", 0, 64)
    assert (envs.reset() == 0).all()
    first, second = envs.step(ones), envs.step(ones)
    assert (first.obs == 1).all()
    assert first.reward.sum() == 0
    assert not first.terminated.any()
    assert (second.reward == 1).all()
    assert second.terminated.all()
    assert (second.obs == 0).all()
    assert (second.next_obs == 1).all()


def test_truncation_is_never_termination() -> None:
    envs = make("probe/truncation", 0, 2)
    envs.reset()
    steps = play(envs, 8)
    assert [step.any_truncated for step in steps] == [False, False, False, True] * 2
    assert not any(step.terminated.any() for step in steps)
    assert steps[3].episodes[1] == (1, 4.0, 4)


@pytest.mark.parametrize("task", ["image", "image84"])
def test_images_show_the_side(task: str) -> None:
    envs = make(f"probe/{task}", 0, 64)
    obs = envs.reset()
    half = obs.shape[-1] // 2
    lit = (obs > 0).flatten(1, 2).any(1)
    assert (lit.sum(1) == 1).all()
    right = lit[:, half:].any(1)
    assert right.any()
    assert not right.all()
    assert len(set(lit.long().argmax(1).tolist())) > 4
    assert (envs.step(right.long()).reward == 1).all()
    assert envs.spec.frames == (4 if task == "image84" else 1)
