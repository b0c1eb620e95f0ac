"""Parts that suites share: checks of arguments and actions, seeds, and running episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State


class EnvironmentFailure(RuntimeError):
    """An environment cannot go on; the message says which and why."""


class BadValue(Exception):
    """One environment of a batch returned something that cannot be used."""

    def __init__(self, env: int, problem: str) -> None:
        super().__init__(env, problem)
        self.env, self.problem = env, problem


def is_finite(values: NDArray[Any]) -> bool:
    """Return whether no value is NaN or infinite.

    Examples:
        >>> is_finite(np.array([1e30, -1e30], dtype=np.float32)), is_finite(np.array([0, np.nan]))
        (True, False)
    """
    # With such a value, the sum of squares is not finite either, and takes a tenth of the time of
    # isfinite(). It can also overflow: only then is each value looked at.
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def check_finite(values: NDArray[Any], kind: str, environments: NDArray[Any] | None = None) -> None:
    """Refuse values that are not finite.

    Args:
        values: The values of every environment, a row for each.
        kind: What they are, for the error.
        environments: The numbers of the environments, if they are not all of them.
    """
    if is_finite(values):
        return
    row, *entry = np.argwhere(~np.isfinite(values))[0].tolist()
    env = row if environments is None else int(environments[row])
    place = f" (entry {', '.join(map(str, entry))})" if entry else ""
    raise BadValue(env, f"{kind} of {values[(row, *entry)]}{place}")


def check_task(suite: str, task: str, tasks: tuple[str, ...]) -> None:
    """Refuse a task that the suite does not have."""
    if task not in tasks:
        raise ValueError(f"{suite} has no task {task!r}; it has: {', '.join(tasks)}")


def check_num_envs(num_envs: int) -> None:
    """Refuse an empty batch."""
    if num_envs < 1:
        raise ValueError(f"num_envs (--algo.num-envs) must be at least 1, got {num_envs}")


def environment_seeds(seed: int | Sequence[int], num_envs: int) -> list[int]:
    """Return one 32-bit seed per environment, unrelated to those of any other seed.

    Environment i has the same seed in a batch of any size. A sequence already holds one seed per
    environment and is returned as a list, so that part of a batch keeps the seeds it has there.
    """
    if isinstance(seed, Sequence):
        return list(seed[:num_envs])
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(num_envs)]


def check_actions(action: Tensor, num_envs: int, spec: EnvSpec) -> NDArray[Any]:
    """Return the actions as a NumPy array, after a check of shape, dtype and range."""
    shape = (num_envs, *spec.action_shape)
    if action.shape != shape:
        raise ValueError(
            f"actions must have shape {shape}, one for each environment, got {tuple(action.shape)}"
        )
    if action.is_floating_point() != spec.continuous:
        expected = "floating-point numbers" if spec.continuous else "integers"
        raise ValueError(f"actions must be {expected}, got {action.dtype}")
    actions: NDArray[Any] = action.numpy(force=True)
    if spec.continuous:
        invalid = ~(np.abs(actions) <= 1)  # NaN as well
        limits = "lie in [-1, 1]"
    else:
        actions = actions.astype(np.int64, copy=False)
        # Seen as unsigned, a negative number is very large: one comparison checks both limits.
        invalid = actions.view(np.uint64) >= spec.num_actions
        limits = f"lie in 0..{spec.num_actions - 1}"
    if invalid.any():
        raise ValueError(f"actions must {limits}, got {actions[invalid][0]}")
    return actions


def copy_to_device(
    array: NDArray[Any], device: torch.device, environments: NDArray[Any] | None = None
) -> Tensor:
    """Return a copy of observations on a device; the array may be overwritten at once.

    Observations that leave the CPU must be finite. ``environments`` are their numbers, if the array
    does not hold one row of every environment.
    """
    if device.type != "cpu" and array.dtype.kind == "f":
        check_finite(array, "an observation", environments)
    tensor = torch.from_numpy(array)
    if device.type == "cuda" and array.nbytes >= _PINNED_BYTES:
        # The copy from pinned memory is asynchronous; PyTorch keeps that memory until it is done.
        tensor = tensor.pin_memory()
    return tensor.to(device, copy=True, non_blocking=True)


_PINNED_BYTES = 1 << 18
"""Arrays of at least this size are pinned; for smaller ones the driver's own copy is faster."""


class RunningEpisodes:
    """The unclipped return and the length of every running episode."""

    def __init__(self, num_envs: int) -> None:
        self.scores = np.zeros(num_envs, dtype=np.float64)
        self.lengths = np.zeros(num_envs, dtype=np.int64)

    def add(self, reward: NDArray[Any]) -> None:
        """Count one step of every environment."""
        self.scores += reward
        self.lengths += 1

    def finish(self, env: int) -> Episode:
        """Return an environment's finished episode and start counting the next one."""
        episode = Episode(env, float(self.scores[env]), int(self.lengths[env]))
        self.scores[env] = 0
        self.lengths[env] = 0
        return episode

    def clear(self) -> None:
        """Forget the running episodes."""
        self.scores[:] = 0
        self.lengths[:] = 0

    def state_dict(self) -> State:
        """Return copies of both counts."""
        return {"scores": self.scores.copy(), "lengths": self.lengths.copy()}

    def load_state_dict(self, state: State) -> None:
        """Load both counts."""
        self.scores[:] = np.asarray(state["scores"])
        self.lengths[:] = np.asarray(state["lengths"])


def check_saved(saved: int, num_envs: int) -> None:
    """Refuse a saved state of another number of environments."""
    if saved != num_envs:
        raise ValueError(
            f"the saved state has {saved} environments, but here there are {num_envs}: "
            f"make the environments with num_envs={saved}"
        )
