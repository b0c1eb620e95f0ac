"""A ring of slots for each environment, which keeps each frame once.

A slot is one frame with the action taken on seeing it, the reward and whether the task ended.
An observation of k stacked frames is k neighboring slots, and its successor is the same one slot
later: a million Atari transitions are a million frames (7.1 GB), not eight million. A new episode
stores all k frames of its first observation, so every stack is exactly what the agent saw.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Step
from hadamard.learning.replay import allocation
from hadamard.learning.replay.allocation import Storage


class Indices(NamedTuple):
    """Where transitions are stored: their environments and slots."""

    envs: Tensor
    slots: Tensor


class Ring:
    """The newest steps of each environment, and which of them a draw may start at.

    With a horizon of n, a draw is n steps in a row. A draw may start at a step when n steps follow
    in the same episode, or the task ends before: the slots after that end hold other steps, which
    the learner must mask.
    """

    pushed: list[int] | NDArray[np.int64]  # arrays in a fleet, here and below
    ages: list[int] | NDArray[np.int64]

    def __init__(
        self,
        env: EnvSpec,
        num_envs: int,
        capacity: int,
        device: torch.device,
        storage: Storage,
        folder: str | os.PathLike[str] | None,
        horizon: int,
        prioritized: bool,
        on_host: bool,
    ) -> None:
        self.stack, self.horizon = env.frames, horizon
        self.slots = capacity // num_envs
        min_slots = max(4 * self.stack, 2 * horizon + self.stack)
        if self.slots < min_slots:
            raise ValueError(
                f"--algo.replay-capacity: {capacity} steps of {num_envs} environments are too "
                f"few, at least {min_slots * num_envs} are needed"
            )
        self.device = device
        self.frame_shape = (env.obs_shape[0] // self.stack, *env.obs_shape[1:])
        shape = (num_envs, self.slots, *self.frame_shape)
        self.nbytes = num_envs * self.slots * self._slot_bytes(env, prioritized)
        """Memory of a full replay."""
        with allocation.explained(capacity, self.nbytes):
            self.frames = allocation.frames(shape, env.obs_dtype, storage, device, folder)
            grid = (num_envs, self.slots)
            data_device = torch.device("cpu") if on_host else self.frames.device
            self.action = torch.zeros(
                (*grid, *env.action_shape), dtype=env.action_dtype, device=data_device
            )
            self.reward = torch.zeros(grid, device=data_device)
            self.terminated = torch.zeros(grid, dtype=torch.bool, device=data_device)
            self.usable = torch.zeros(grid, dtype=torch.bool, device=data_device)
            """Whether a draw may start here."""
            self.priority = torch.zeros(grid, device=data_device) if prioritized else None
        self.largest_priority = torch.ones((), device=data_device)
        """The priority of new steps."""
        self.arrays: dict[str, NDArray[Any]] = {}
        for name in ("frames", "action", "reward", "terminated", "usable"):
            self.move(name, getattr(self, name))
        self.pushed = [0] * num_envs
        """Frames ever pushed by each environment; the newest is the current observation's."""
        self.ages = [0] * num_envs
        """Steps so far in each environment's running episode."""

    def move(self, name: str, tensor: Tensor) -> None:
        """Keep the frames, or other values, in a tensor that holds them already."""
        setattr(self, name, tensor)
        if name == "frames":
            self._flat_frames = tensor.flatten(0, 1)
        elif not tensor.is_cuda:  # NumPy views of CPU tensors: scalar writes are 10x faster
            self.arrays[name] = tensor.numpy()

    def _slot_bytes(self, env: EnvSpec, prioritized: bool) -> int:
        frame = math.prod(self.frame_shape) * env.obs_dtype.itemsize
        action = math.prod(env.action_shape) * env.action_dtype.itemsize
        reward = priority = torch.float32.itemsize
        terminated = usable = torch.bool.itemsize
        return frame + action + reward + terminated + usable + prioritized * priority

    def __len__(self) -> int:
        """Return the number of transitions that can be drawn."""
        return int(self.usable.sum())

    @property
    def priorities(self) -> tuple[Tensor, ...]:
        """The tensors that drawing by priority reads and ``set_priority`` changes."""
        return () if self.priority is None else (self.priority, self.largest_priority)

    def begin(self, obs: Tensor, envs: list[int] | None = None) -> None:
        """Start episodes with these observations, in all environments or in some."""
        stacks = obs.unflatten(1, (self.stack, -1))
        for row, env in enumerate(range(len(self.pushed)) if envs is None else envs):
            self.ages[env] = 0
            for frame in stacks[row]:
                self._push(env, frame)

    def add(self, action: Tensor, step: Step) -> None:
        """Store the actions taken on the current observations, and the step that followed."""
        newest = step.next_obs[:, -self.frame_shape[0] :]
        scalar = action.dim() == 1 and not action.is_cuda
        actions: Any = action.tolist() if scalar else action.to(self.action.device)
        reward, terminated = step.reward.tolist(), step.terminated.tolist()
        for env in range(len(self.pushed)):
            slot = (self.pushed[env] - 1) % self.slots
            if scalar:
                self._write("action", (env, slot), actions[env])
            else:
                self.action[env, slot] = actions[env]
            self._write("reward", (env, slot), reward[env])
            self._write("terminated", (env, slot), terminated[env])
            if self.priority is not None:
                self.priority[env, slot] = self.largest_priority
            self._push(env, newest[env])
            self.ages[env] += 1
            # The step ``horizon`` steps back becomes usable; at an end, all later ones do too.
            oldest = self.horizon - 1
            for age in range(oldest, -1, -1) if terminated[env] else [oldest]:
                if age < self.ages[env]:
                    self._write("usable", (env, (slot - age) % self.slots), True)
        if step.final_index is not None:
            reset = step.final_index.tolist()
            self.begin(step.obs[step.final_index.to(step.obs.device)], reset)

    def _push(self, env: int, frame: Tensor) -> None:
        slot = self.pushed[env] % self.slots
        self._flat_frames[env * self.slots + slot].copy_(frame)
        self.pushed[env] += 1
        # Stacks that reach back over this slot have lost a frame.
        end = slot + self.stack
        self._write("usable", (env, slice(slot, end)), False)
        if end > self.slots:
            self._write("usable", (env, slice(0, end - self.slots)), False)

    def _write(self, name: str, index: tuple[int, int | slice], value: float) -> None:
        """Write a Python number."""
        if name in self.arrays:
            self.arrays[name][index] = value
        else:
            getattr(self, name)[index].fill_(value)  # an assignment would wait for the GPU

    def observations(self, indices: Indices, first: int, count: int) -> Tensor:
        """Return observations of steps in a row, (draws, count, ...).

        The first one is ``first`` steps after the step that is indexed.
        """
        slots = self.frame_slots(indices, first, count)
        # One index per frame: on a CPU, indexing several dimensions copies pixel by pixel.
        index = (indices.envs[:, None, None] * self.slots + slots).to(self.frames.device)
        frames = self._flat_frames.index_select(0, index.flatten())
        frames = frames.to(self.device, non_blocking=True)
        return frames.reshape(*index.shape[:2], -1, *self.frame_shape[1:])

    def frame_slots(self, indices: Indices, first: int, count: int) -> Tensor:
        """Return the slots of these observations' frames, (draws, count, stack)."""
        device = indices.slots.device
        steps = torch.arange(first, first + count, device=device)
        frames = torch.arange(1 - self.stack, 1, device=device)
        return (indices.slots[:, None, None] + steps[:, None] + frames) % self.slots

    def steps(self, indices: Indices, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, rewards and terminations of ``count`` steps, each (draws, count, ...)."""
        steps = torch.arange(count, device=indices.slots.device)
        index = indices.envs[:, None], (indices.slots[:, None] + steps) % self.slots
        stored = self.action[index], self.reward[index], self.terminated[index]
        action, reward, terminated = (tensor.to(self.device) for tensor in stored)
        return action, reward, terminated
