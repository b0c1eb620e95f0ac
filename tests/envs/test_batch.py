"""Single environments as one batch: what they return is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hadamard.core.types import EnvSpec, State
from hadamard.envs.batch import BatchEnvs
from hadamard.envs.common import BadValue

GOOD = (np.arange(3.0), 1.5, False)


class Scripted:
    """A task that returns what it is told, and observes zeros at the start of an episode."""

    def __init__(self, result: Any = GOOD, start: Any = (0.0, 0.0, 0.0), pixels: bool = False):
        dtype = torch.uint8 if pixels else torch.float32
        self.spec = EnvSpec((3,), dtype, action_size=1)
        self.result, self.start = result, start

    def reset(self) -> Any:
        return self.start

    def step(self, action: Any) -> Any:
        return self.result

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> Any:
        return self.start

    def render(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


def batch(task: Scripted) -> BatchEnvs:
    """Return two environments of which the second is under test."""
    return BatchEnvs([Scripted(), task])


ACTIONS = torch.zeros(2, 1)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ((np.zeros(4), 0.0, False), r"an observation of shape \(4,\) instead of \(3,\)"),
        ((np.zeros(1), 0.0, False), r"an observation of shape \(1,\)"),  # NumPy would repeat it
        ((0.0, 0.0, False), r"an observation of shape \(\)"),
        ((None, 0.0, False), r"an observation of shape \(\)"),
        (({"position": np.zeros(3)}, 0.0, False), r"an observation of shape \(\)"),
        (([[1.0], [2.0, 3.0]], 0.0, False), "an observation that is no array"),
        ((["1", "2", "3"], 0.0, False), "an observation of type <U1 instead of float32"),
        ((np.zeros(3, dtype=complex), 0.0, False), "an observation of type complex128"),
        ((np.zeros(3), np.zeros(1), False), r"a reward that is no number: array\(\[0.\]\)"),
        ((np.zeros(3), None, False), "a reward that is no number: None"),
        ((np.zeros(3), "1", False), "a reward that is no number: '1'"),
        ((np.zeros(3), 1j, False), "a reward that is no number: 1j"),
        ((np.zeros(3), 0.0, None), "a termination that is neither True nor False: None"),
        ((np.zeros(3), 0.0, 0.5), "a termination that is neither True nor False: 0.5"),
    ],
)
def test_wrong_types_and_shapes_name_the_environment(result: Any, problem: str) -> None:
    envs = batch(Scripted(result))
    envs.reset()
    with pytest.raises(BadValue, match=problem) as error:
        envs.step(ACTIONS)
    assert error.value.env == 1


def test_pixels_must_be_bytes() -> None:
    black = np.zeros(3, dtype=np.uint8)
    envs = BatchEnvs([Scripted((black, 0.0, False), black, pixels=True)])
    assert envs.reset().dtype == envs.step(ACTIONS[:1]).obs.dtype == torch.uint8
    envs = BatchEnvs([Scripted(start=(0, 0, 0), pixels=True)])
    with pytest.raises(BadValue, match="an observation of type int64 instead of uint8"):
        envs.reset()


def test_a_wrong_start_names_the_environment() -> None:
    for start in (BatchEnvs.reset, lambda envs: envs.load_state_dict({"tasks": [{}, {}]})):
        with pytest.raises(BadValue, match=r"shape \(2,\) instead of \(3,\)") as error:
            start(batch(Scripted(start=np.zeros(2))))
        assert error.value.env == 1


@pytest.mark.parametrize("reward", [2, 1.5, np.float32(1.5), np.float64(1.5), np.int64(2), True])
def test_any_real_number_is_a_reward(reward: Any) -> None:
    envs = batch(Scripted((np.arange(3), reward, np.bool_(True))))
    envs.reset()
    step = envs.step(ACTIONS)
    assert step.reward.tolist() == [1.5, float(reward)]
    assert step.terminated.tolist() == [False, True]
    assert step.next_obs[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((np.zeros(3), np.nan, False), "the reward is nan"),
        ((np.zeros(3), np.inf, True), "the reward is inf"),
        ((np.array([0, np.nan, 0]), 1.0, False), "the observation is not finite"),
        ((np.array([0, 0, -np.inf]), 1.0, True), "the observation is not finite"),
    ],
)
def test_what_is_not_finite_ends_the_episode_with_the_last_good_observation(
    result: Any, message: str
) -> None:
    envs = batch(Scripted(result, start=(7.0, 8.0, 9.0)))
    envs.reset()
    with pytest.warns(UserWarning, match=f"environment 1: {message}; its episode ends here"):
        step = envs.step(ACTIONS)
    assert step.truncated.tolist() == [False, True]
    assert not step.terminated.any()
    assert step.reward.tolist() == [1.5, 0]
    assert step.next_obs[1].tolist() == [7, 8, 9]
    assert step.episodes == ((1, 0.0, 1),)
