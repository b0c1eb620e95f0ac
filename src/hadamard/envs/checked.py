"""What environments return is checked before a learner, a replay or a checkpoint receives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, State, Step
from hadamard.envs.common import BadValue, EnvironmentFailure, check_finite

PARTS = ("observations", "rewards", "terminations", "truncations")


class InvalidStep(EnvironmentFailure):
    """An environment returned a value that is not finite, or of a wrong type or shape."""


class CheckedEnvs:
    """A batch of environments; what it returns is checked.

    Observations on a GPU are not checked here, which would wait for the GPU: ``copy_to_device``
    has checked them on their way there.

    Args:
        envs: The environments.
        name: What they are called in an error, such as their task.
        first: Number of the first of them, if they are one of several groups.
    """

    def __init__(self, envs: Envs, name: str, first: int = 0) -> None:
        self.envs, self.name, self.first = envs, name, first
        self.spec, self.num_envs, self.exact = envs.spec, envs.num_envs, envs.exact
        self.splittable = getattr(envs, "splittable", False)
        """Whether every value of a state has one entry per environment."""
        shape = (self.num_envs,)
        self._forms = (
            (self.spec.obs_dtype, (*shape, *self.spec.obs_shape)),
            (torch.float32, shape),
            (torch.bool, shape),
            (torch.bool, shape),
        )

    def reset(self) -> Tensor:
        """Start new episodes everywhere."""
        obs: Tensor = self._checked_start(self.envs.reset)
        return obs

    def send(self, action: Tensor, **options: Any) -> None:
        """Start one step; options are those of ``fleet_workers``, here and below."""
        self.envs.send(action, **options)

    def receive(self, **options: Any) -> Step:
        """Wait for the step that ``send`` started; raises InvalidStep if it cannot be used."""
        try:
            step = self.envs.receive(**options)
            forms = (_form(step.obs), _form(step.reward), _form(step.terminated))
            self._check_forms(*forms, _form(step.truncated))
            check_finite(step.reward.numpy(), "a reward")
            _check_observations(step.obs)
            if step.final_index is not None and step.final_obs is not None:
                _check_observations(step.final_obs, step.final_index.numpy())
            for episode in step.episodes:
                if not math.isfinite(episode.score):
                    raise BadValue(episode.env, f"a score of {episode.score}")
        except BadValue as error:
            raise self._failure(error) from None
        return step

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment.

        Raises:
            NotImplementedError: The suite draws none.
        """
        draw: Callable[[], NDArray[np.uint8]] | None = getattr(self.envs, "render", None)
        if draw is None:
            raise NotImplementedError(f"{self.name} has no pictures")
        return draw()

    def close(self) -> None:
        """Free what the environments hold."""
        self.envs.close()

    def state_dict(self) -> State:
        """Return the environments' state."""
        return self.envs.state_dict()

    def load_state_dict(self, state: State) -> Tensor | None:
        """Load a state; return its observations, or None if the suite cannot restore exactly."""
        obs: Tensor | None = self._checked_start(lambda: self.envs.load_state_dict(state))
        return obs

    def _checked_start(self, start: Callable[[], Any]) -> Any:
        """Return the observations that episodes start or continue with, if there are any."""
        try:
            obs = start()
            if obs is not None:
                self._check_forms(_form(obs))
                _check_observations(obs)
        except BadValue as error:
            raise self._failure(error) from None
        return obs

    def _check_forms(self, *forms: Any) -> None:
        """Check the types and shapes of a step's parts."""
        if forms == self._forms[: len(forms)]:
            return
        for part, form, expected in zip(PARTS, forms, self._forms, strict=False):
            if form != expected:
                raise InvalidStep(
                    f"{self.name} returned {part} of {_in_words(form)}; its suite must return "
                    f"{_in_words(expected)}"
                )

    def _failure(self, error: BadValue) -> InvalidStep:
        return InvalidStep(
            f"environment {self.first + error.env} of {self.name} returned {error.problem}"
        )


def _form(value: Any) -> Any:
    """Return a tensor's type and shape, or the type of anything else."""
    return (value.dtype, value.shape) if isinstance(value, Tensor) else type(value)


def _in_words(form: Any) -> str:
    if isinstance(form, type):
        return f"type {form.__name__}"
    dtype, shape = form
    return f"type {dtype} and shape {tuple(shape)}"


def _check_observations(obs: Tensor, environments: NDArray[Any] | None = None) -> None:
    if obs.is_floating_point() and obs.device.type == "cpu":
        check_finite(obs.numpy(), "an observation", environments)
