"""What the suites share: checked arguments and actions, and the score of each running episode."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State


def check_task(suite: str, task: str, tasks: tuple[str, ...]) -> None:
    """Refuse a task that the suite does not have."""
    if task not in tasks:
        raise ValueError(f"{suite} has no task {task!r}; it has: {', '.join(tasks)}")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # where the system tells
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_num_envs(num_envs: int) -> None:
    """Refuse an empty batch."""
    if num_envs < 1:
        raise ValueError(f"num_envs (--algo.num-envs) must be at least 1, got {num_envs}")


def spread(seed: int | Sequence[int], num_envs: int) -> list[int]:
    """Return one 32-bit seed for each environment, unrelated to those of any other seed.

    The first ones are the same for any number of environments. Seeds that were already spread are
    returned as they are, so that a part of a batch has the seeds it has in the whole.
    """
    if isinstance(seed, Sequence):
        return list(seed[:num_envs])
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(num_envs)]


def check_actions(action: Tensor, num_envs: int, spec: EnvSpec) -> NDArray[Any]:
    """Bring the actions to the CPU and refuse what the environments cannot take."""
    shape = (num_envs, *spec.action_shape)
    if action.shape != shape:
        raise ValueError(
            f"actions must have shape {shape}, one for each environment, got {tuple(action.shape)}"
        )
    if action.is_floating_point() != spec.continuous:
        wanted = "floating-point numbers" if spec.continuous else "integers"
        raise ValueError(f"actions must be {wanted}, got {action.dtype}")
    chosen: NDArray[Any] = action.numpy(force=True)
    if spec.continuous:
        wrong = ~(np.abs(chosen) <= 1)  # NaN as well
        limits = "lie in [-1, 1]"
    else:
        chosen = chosen.astype(np.int64, copy=False)
        # A negative number is a very large one without its sign: one comparison for both ends.
        wrong = chosen.view(np.uint64) >= spec.num_actions
        limits = f"lie in 0..{spec.num_actions - 1}"
    if wrong.any():
        raise ValueError(f"actions must {limits}, got {chosen[wrong][0]}")
    return chosen


def copied(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return a copy on a device; the array may be written again at once."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda" and array.nbytes >= _LARGE:
        # Pinned memory is read in the background; PyTorch keeps the block until then.
        tensor = tensor.pin_memory()
    return tensor.to(device, copy=True, non_blocking=True)


_LARGE = 1 << 18
"""Bytes from which pinning pays; less than that the driver keeps aside faster by itself."""


class Tally:
    """The unclipped return and the length of every running episode."""

    def __init__(self, num_envs: int) -> None:
        self.scores = np.zeros(num_envs, dtype=np.float64)
        self.lengths = np.zeros(num_envs, dtype=np.int64)

    def add(self, reward: NDArray[Any]) -> None:
        """Count one step of every environment."""
        self.scores += reward
        self.lengths += 1

    def finish(self, env: int) -> Episode:
        """Close an environment's episode and start the next one's count."""
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
        """Take both counts from a state of as many environments."""
        self.scores[:] = np.asarray(state["scores"])
        self.lengths[:] = np.asarray(state["lengths"])


def check_saved(saved: int, num_envs: int) -> None:
    """Refuse the state of another number of environments."""
    if saved != num_envs:
        raise ValueError(
            f"the saved state is of {saved} environments and there are {num_envs} here: "
            f"make the environments with num_envs={saved}"
        )
