"""The replays of several runs, stored in and drawn from at once.

Each run keeps its `Replay`, whose rewards, actions and flags are rows of this one's. Its frames
stay where they are, since moving them would need twice the memory.

The steps that can be drawn are numbered in their order, so a uniform number chooses one of them
without a second attempt. What an update draws is known before the step that it follows is stored:
the update can be made at once, unless it drew the step in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.compute.jit import jit
from hadamard.core.types import Metrics, Step
from hadamard.learning.replay import Replay

Integers = NDArray[np.int64]
DRAWS = 3
"""Uniform numbers that choose a transition."""


class Drawn(NamedTuple):
    """Transitions of every run, each (runs, batch)."""

    rows: Integers
    """Their environments, numbered over all runs."""
    steps: Integers
    """Which step of the environment, by the number that counts its steps."""


class StackedReplay:
    """The newest transitions of several runs whose replays have one shape.

    For replays that keep everything but the frames on the CPU, with a horizon of one step.
    """

    def __init__(self, members: Sequence[Replay], device: torch.device, *, capture: bool) -> None:
        first = members[0]
        self.members, self.device = list(members), device
        self.slots, self.stack, self.channels = first.slots, first.stack, first.frame_shape[0]
        self._channel_dim = -len(first.frame_shape)
        self.num_envs = len(first.pushed)
        self._arrays: dict[str, NDArray[Any]] = {}
        for name in first.arrays:
            stacked = torch.stack([getattr(member, name) for member in members])
            self._arrays[name] = stacked.flatten(0, 1).numpy()
            for member, row in zip(members, stacked, strict=True):
                member.move(name, row)
        pushed, ages = (
            np.array([getattr(member, name) for member in members], dtype=np.int64)
            for name in ("pushed", "ages")
        )
        for member, *row in zip(members, pushed, ages, strict=True):
            member.pushed, member.ages = row
        self._pushed, self._ages = pushed.reshape(-1), ages.reshape(-1)
        count = len(self._pushed)
        self._rows = np.arange(count)
        self._reach = np.arange(self.stack)
        self._frame_of = np.zeros((count, self.slots), dtype=np.int64)
        """The newest frame of the steps, by the steps' numbers: counted as in ``pushed``."""
        self._oldest = np.zeros(count, dtype=np.int64)
        """The first step that can be drawn."""
        self.steps = np.zeros(count, dtype=np.int64)
        """The number of the next step of each environment."""
        for row in range(count):
            self._number(row)
        self._frames = [member.frames.flatten(0, 1) for member in members]
        on_gpu = all(frames.is_cuda for frames in self._frames)
        place = device if on_gpu else torch.device("cpu")
        # Repeated, it writes the same again, so nothing has to be undone after warm-up calls.
        self._write = jit(self._write_frames, place, [], capture and on_gpu)
        self._fetch = jit(self._fetch_frames, place, [], capture and on_gpu, reuse_output=True)

    def _number(self, row: int) -> None:
        """Number the steps of an environment that its replay holds already."""
        pushed = int(self._pushed[row])
        frames = np.arange(max(0, pushed - self.slots), pushed)
        frames = frames[self._arrays["usable"][row, frames % self.slots]]
        self._frame_of[row, : len(frames)] = frames
        self.steps[row] = len(frames)

    def draw(self, uniforms: NDArray[np.float64], in_flight: NDArray[np.bool_]) -> Drawn:
        """Choose transitions of an update that follows a step, with uniform numbers.

        The step itself may be among them. The choice is the same as long as it is in flight and
        after it is stored.

        Args:
            uniforms: (runs, batch, DRAWS).
            in_flight: Of which environments that step is in flight; of the others it is stored.
        """
        runs = np.arange(len(self.members))[:, None]
        rows = runs * self.num_envs + (uniforms[..., 0] * self.num_envs).astype(np.int64)
        end = self.steps + in_flight
        first = self._first(in_flight)
        # Two numbers of 24 bits: one alone would not reach all slots equally often.
        place = uniforms[..., 1] + uniforms[..., 2] * 2.0**-24
        steps = first[rows] + (place * (end - first)[rows]).astype(np.int64)
        return Drawn(rows, steps)

    def _first(self, in_flight: NDArray[np.bool_]) -> Integers:
        """Return the first step that is kept whatever comes of the step, in or past its flight."""
        rows = self._rows[:, None]
        last = self._frame_of[self._rows, (self.steps - 1) % self.slots]
        newest = np.where(in_flight, self._pushed - 1, last)
        # The step pushes one frame, and at an end of an episode a whole stack more.
        kept = newest + 2 * self.stack + 1 - self.slots
        candidates = self._oldest[:, None] + np.arange(self.stack + 2)
        lost = self._frame_of[rows, candidates % self.slots] < kept[:, None]
        lost &= candidates < self.steps[:, None]
        first: Integers = self._oldest + lost.sum(1)
        return first

    def holds(self, drawn: Drawn) -> bool:
        """Tell whether all these transitions are stored: none is the step in flight."""
        return bool((drawn.steps < self.steps[drawn.rows]).all())

    def batch(self, drawn: Drawn) -> tuple[Tensor, ...]:
        """Return frames, actions, rewards and terminations, each (runs, batch, ...).

        The frames of an observation and of its successor overlap: see `observations`.
        """
        slots = self._frame_of[drawn.rows, drawn.steps % self.slots] % self.slots
        reach = np.arange(1 - self.stack, 2)
        index = (drawn.rows % self.num_envs * self.slots)[..., None]
        index = index + (slots[..., None] + reach) % self.slots
        frames = self._fetch(torch.from_numpy(index))["frames"]
        names = ("action", "reward", "terminated")
        values = [torch.from_numpy(self._arrays[name][drawn.rows, slots]) for name in names]
        return frames, *values

    def observations(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return the observations and their successors; channels are the third last dimension."""
        dim, count = self._channel_dim, self.stack * self.channels
        return frames.narrow(dim, 0, count), frames.narrow(dim, self.channels, count)

    def store(self, action: Tensor, step: Step) -> None:
        """Store a step of the environments that made one, those of the first run first."""
        rows = self._rows if step.present is None else np.flatnonzero(step.present)
        frames = self._pushed[rows] - 1
        slots = frames % self.slots
        values = {"action": action, "reward": step.reward, "terminated": step.terminated}
        for name, value in values.items():
            self._arrays[name][rows, slots] = value.numpy(force=True)[rows]
        self._push(rows)
        # Of an environment that made no step, the frame that it has is written again.
        newest = step.next_obs[:, -self.channels :].unflatten(0, (-1, self.num_envs))
        places = self._places(self._rows).reshape(-1, self.num_envs)
        self._write(torch.from_numpy(places), newest)
        self._ages[rows] += 1
        self._arrays["usable"][rows, slots] = True
        self._frame_of[rows, self.steps[rows] % self.slots] = frames
        self.steps[rows] += 1
        if step.final_index is not None:
            for row in step.final_index.tolist():
                self._begin(row, step.obs[row])

    def _begin(self, row: int, obs: Tensor) -> None:
        """Start an episode of an environment with this observation."""
        self._ages[row] = 0
        rows, index = self._rows[row : row + 1], []
        for _ in range(self.stack):
            self._push(rows)
            index.append(self._places(rows)[0])
        frames = self._frames[row // self.num_envs]
        stack = obs.unflatten(0, (self.stack, self.channels)).to(frames.device)
        frames.index_copy_(0, torch.tensor(index).to(frames.device), stack)

    def _push(self, rows: Integers) -> None:
        """Make room for a frame in each of these rows."""
        pushed = self._pushed[rows]
        # Stacks that reach back over the slots that are overwritten have lost a frame.
        lost = ((pushed % self.slots)[:, None] + self._reach) % self.slots
        self._arrays["usable"][rows[:, None], lost] = False
        oldest = self._oldest[rows]
        frames = self._frame_of[rows, oldest % self.slots]
        lost_step = frames < pushed - self.slots + self.stack
        self._oldest[rows] += (oldest < self.steps[rows]) & lost_step
        self._pushed[rows] = pushed + 1

    def _places(self, rows: Integers) -> Integers:
        """Return where the newest frame of each row belongs among the frames of its run."""
        places: Integers = rows % self.num_envs * self.slots + (self._pushed[rows] - 1) % self.slots
        return places

    def _write_frames(self, index: Tensor, newest: Tensor) -> Metrics:
        for member, (frames, places) in enumerate(zip(self._frames, index, strict=True)):
            frames.index_copy_(0, places.to(frames.device), newest[member].to(frames.device))
        return {}

    def _fetch_frames(self, index: Tensor) -> Metrics:
        batches = [
            frames.index_select(0, places.flatten().to(frames.device)).to(self.device)
            for frames, places in zip(self._frames, index, strict=True)
        ]
        frames = torch.stack(batches).unflatten(1, index.shape[1:])
        return {"frames": frames.flatten(2, 3)}
