"""What environments return is checked, whatever their suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hadamard.core.types import EnvSpec, Episode, Step
from hadamard.envs.checked import CheckedEnvs, InvalidStep
from hadamard.envs.common import BadValue, check_finite, copy_to_device

SPEC = EnvSpec((2, 3), torch.float32, num_actions=2)
OBS = torch.arange(18.0).reshape(3, 2, 3)
FLAGS = torch.zeros(3, dtype=torch.bool)
GOOD = Step(OBS, torch.ones(3), FLAGS, FLAGS)
ENDED = replace(
    GOOD, final_index=torch.tensor([0, 2]), final_obs=OBS[:2], episodes=(Episode(2, 7.0, 4),)
)


class Scripted:
    """Three environments that return what they are told."""

    exact = True

    def __init__(self, step: Any = GOOD, obs: Any = OBS, spec: EnvSpec = SPEC) -> None:
        self.num_envs, self.spec, self.outcome, self.obs = 3, spec, step, obs

    def reset(self) -> Any:
        return self.obs

    def send(self, action: Any) -> None:
        pass

    def receive(self) -> Any:
        return self.outcome

    def load_state_dict(self, state: Any) -> Any:
        return self.obs


def checked(envs: Any, first: int = 0) -> CheckedEnvs:
    return CheckedEnvs(envs, "suite/task", first)


def changed(values: torch.Tensor, place: tuple[int, ...], value: float) -> torch.Tensor:
    values = values.clone()
    values[place] = value
    return values


@pytest.mark.parametrize("step", [GOOD, ENDED])
def test_a_good_step_is_returned_as_it_is(step: Step) -> None:
    assert checked(Scripted(step)).step(FLAGS) is step


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            replace(GOOD, reward=changed(GOOD.reward, (1,), torch.nan)),
            "environment 1 of suite/task returned a reward of nan",
        ),
        (
            replace(GOOD, reward=changed(GOOD.reward, (2,), -torch.inf)),
            "environment 2 of suite/task returned a reward of -inf",
        ),
        (
            replace(GOOD, obs=changed(OBS, (1, 0, 2), torch.nan)),
            "environment 1 of suite/task returned an observation of nan (entry 0, 2)",
        ),
        (
            replace(ENDED, final_obs=changed(OBS[:2], (1, 1, 0), torch.inf)),
            "environment 2 of suite/task returned an observation of inf (entry 1, 0)",
        ),
        (
            replace(ENDED, episodes=(Episode(2, float("nan"), 4),)),
            "environment 2 of suite/task returned a score of nan",
        ),
        # Infinities whose sum would be no more than NaN, and NaN beside the largest number.
        (
            replace(GOOD, reward=torch.tensor([3e38, torch.inf, -torch.inf])),
            "environment 1 of suite/task returned a reward of inf",
        ),
    ],
)
def test_what_is_not_finite_is_refused(step: Step, message: str) -> None:
    with pytest.raises(InvalidStep) as error:
        checked(Scripted(step)).receive()
    assert str(error.value) == message


def test_an_environment_of_a_later_group_has_its_number_in_the_whole_batch() -> None:
    envs = Scripted(replace(GOOD, reward=changed(GOOD.reward, (1,), torch.nan)))
    with pytest.raises(InvalidStep, match="environment 9 of suite/task"):
        checked(envs, first=8).receive()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            replace(GOOD, reward=torch.ones(3, 1)),
            r"rewards of type torch.float32 and shape \(3, 1\).*must return.*shape \(3,\)",
        ),
        (replace(GOOD, reward=torch.ones(3).double()), "rewards of type torch.float64"),
        (replace(GOOD, reward=torch.ones(3).long()), "rewards of type torch.int64"),
        (replace(GOOD, reward=np.ones(3, np.float32)), "rewards of type ndarray"),  # type: ignore[arg-type]
        (replace(GOOD, reward=[1.0] * 3), "rewards of type list"),  # type: ignore[arg-type]
        (replace(GOOD, obs=OBS[:2]), r"observations .*shape \(2, 2, 3\).*shape \(3, 2, 3\)"),
        (replace(GOOD, obs=OBS.double()), "observations of type torch.float64"),
        (replace(GOOD, terminated=torch.zeros(3)), "terminations of type torch.float32"),
        (replace(GOOD, truncated=FLAGS[:1]), r"truncations .*shape \(1,\)"),
    ],
)
def test_wrong_types_and_shapes_are_refused(step: Step, message: str) -> None:
    with pytest.raises(InvalidStep, match=f"suite/task returned {message}"):
        checked(Scripted(step)).receive()


@pytest.mark.parametrize("start", [CheckedEnvs.reset, lambda envs: envs.load_state_dict({})])
def test_the_first_observations_are_checked_too(start: Any) -> None:
    assert start(checked(Scripted())) is OBS
    with pytest.raises(InvalidStep, match="environment 2 of suite/task returned .* of nan"):
        start(checked(Scripted(obs=changed(OBS, (2, 0, 0), torch.nan))))
    with pytest.raises(InvalidStep, match=r"shape \(1, 2, 3\)"):
        start(checked(Scripted(obs=OBS[:1])))


def test_a_suite_that_cannot_restore_exactly_returns_no_observations() -> None:
    assert checked(Scripted(obs=None)).load_state_dict({}) is None


def test_bytes_and_large_numbers_are_accepted() -> None:
    largest = torch.finfo(torch.float32).max
    step = replace(GOOD, obs=OBS * 0 - largest, reward=torch.full((3,), largest))
    assert checked(Scripted(step)).receive() is step
    pixels = torch.full((3, 2, 3), 255, dtype=torch.uint8)
    spec = replace(SPEC, obs_dtype=torch.uint8)
    step = replace(GOOD, obs=pixels)
    assert checked(Scripted(step, spec=spec)).receive() is step


def test_observations_are_checked_before_they_leave_the_cpu() -> None:
    array = changed(OBS, (1, 0, 2), torch.nan).numpy()
    meta = torch.device("meta")  # stands for a GPU
    assert copy_to_device(OBS.numpy(), meta).device == meta
    with pytest.raises(BadValue) as error:
        copy_to_device(array, meta, np.array([4, 6, 7]))
    assert (error.value.env, error.value.problem) == (6, "an observation of nan (entry 0, 2)")
    assert copy_to_device(array, torch.device("cpu")).isnan().any()  # checked when it arrives


def test_every_value_is_looked_at() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        values = random.normal(size=(5, 7)).astype(np.float32) * 10.0 ** random.integers(-30, 30)
        check_finite(values, "a value")
        row, column = random.integers(5), random.integers(7)
        values[row, column] = random.choice([np.nan, np.inf, -np.inf])
        with pytest.raises(BadValue) as error:
            check_finite(values, "a value")
        assert error.value.env == row
        assert f"(entry {column})" in error.value.problem
