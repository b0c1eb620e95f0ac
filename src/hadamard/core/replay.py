"""Replay that keeps each frame once.

Every environment has a ring of slots, and a slot is one frame with what was done on seeing it.
An observation of k stacked frames is k neighbouring slots, its successor the same one slot on:
a million Atari transitions are a million frames (7.1 GB), not eight million. A fresh episode
brings all k frames of its first observation, so every stack is exactly the one that was seen.

With a horizon of n a draw is n steps in a row. They never cross a time limit; where the task ends
before the n-th, what comes after the end is whatever the slots hold, for the learner to mask.
"""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from hadamard.core.checkpoint import CheckpointError, checksum, read_tensors, write_tensors
from hadamard.core.types import EnvSpec, State, Step

Storage = Literal["memory", "disk", "device", "auto"]


class Batch(NamedTuple):
    """Transitions on the learner's device."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    next_obs: Tensor


class Draw(NamedTuple):
    """Which transitions were drawn: their environments and slots."""

    envs: Tensor
    slots: Tensor


class _Chunk(TypedDict):
    """A file of frames: those of each environment up to these counts."""

    file: str
    sha256: str
    end: list[int]


class Replay:
    """A ring of frames for each environment.

    ``storage`` says where the frames live: in memory, memory-mapped on disk (in a file that is
    unlinked at once, so nothing is left behind), on the learner's device, or there if at most half
    of its free memory is needed (``auto``). What was done is kept, and drawn, where the frames are:
    on a GPU nothing here waits for the host, so that drawing can be a part of a captured graph.
    With ``on_host`` all but the frames stays in memory: to store a step is one copy to a GPU then,
    not a dozen, and the host knows what is drawn (``packed``), also in advance (``draw_ahead``).

    All transitions are equally likely, or as likely as their priorities if they are prioritised;
    a new one then has the largest priority there was since ``forget_largest``.
    """

    def __init__(
        self,
        env: EnvSpec,
        num_envs: int,
        capacity: int,
        device: torch.device,
        storage: Storage = "memory",
        folder: str | os.PathLike[str] | None = None,
        *,
        horizon: int = 1,
        prioritised: bool = False,
        on_host: bool = False,
    ) -> None:
        self.stack, self.horizon = env.frames, horizon
        self.slots = capacity // num_envs
        smallest = max(4 * self.stack, 2 * horizon + self.stack)
        if self.slots < smallest:
            raise ValueError(
                f"--algo.replay-capacity: {capacity} steps of {num_envs} environments are too "
                f"few, at least {smallest * num_envs} are needed"
            )
        self.device = device
        self.frame_shape = (env.obs_shape[0] // self.stack, *env.obs_shape[1:])
        shape = (num_envs, self.slots, *self.frame_shape)
        self.frames = _allocate(shape, env.obs_dtype, storage, device, folder)
        grid = (num_envs, self.slots)
        place = torch.device("cpu") if on_host else self.frames.device
        self.action = torch.zeros((*grid, *env.action_shape), dtype=env.action_dtype, device=place)
        self.reward = torch.zeros(grid, device=place)
        self.terminated = torch.zeros(grid, dtype=torch.bool, device=place)
        self.usable = torch.zeros(grid, dtype=torch.bool, device=place)
        """Whether a draw may start here."""
        self.priority = torch.zeros(grid, device=place) if prioritised else None
        self.largest_priority = torch.ones((), device=place)
        self._places = self.frames.flatten(0, 1)
        held = {"action": self.action, "reward": self.reward, "terminated": self.terminated}
        held["usable"] = self.usable
        # The same memory, where the host has it: one number is written in a tenth of the time.
        self._arrays = {name: t.numpy() for name, t in held.items() if not t.is_cuda}
        self.pushed = [0] * num_envs
        """Frames ever pushed by each environment; the newest is the current observation's."""
        self.ages = [0] * num_envs
        """Steps of each environment's running episode."""
        self._saved = [0] * num_envs
        self._chunks: list[_Chunk] = []

    def __len__(self) -> int:
        """Return the number of transitions that can be drawn."""
        return int(self.usable.sum())

    def require_draws(self) -> None:
        """Refuse to go on where nothing can be drawn yet."""
        if len(self) == 0:
            raise ValueError(
                f"no episode has lasted the {self.horizon} steps of a draw yet: raise "
                "--algo.random-steps, or lower --algo.encoder-horizon and --algo.value-horizon"
            )

    @property
    def nbytes(self) -> int:
        """Memory of a full replay."""
        held = (self.frames, self.action, self.reward, self.terminated, self.usable)
        return sum(tensor.nbytes for tensor in held)

    def _push(self, env: int, frame: Tensor) -> None:
        slot = self.pushed[env] % self.slots
        self._places[env * self.slots + slot].copy_(frame)
        self.pushed[env] += 1
        # Stacks that reach back over this slot have lost a frame.
        end = slot + self.stack
        self._write("usable", (env, slice(slot, end)), False)
        if end > self.slots:
            self._write("usable", (env, slice(0, end - self.slots)), False)

    def _write(self, name: str, where: tuple[int, int | slice], value: float) -> None:
        """Write a number that the host knows."""
        if name in self._arrays:
            self._arrays[name][where] = value
        else:
            getattr(self, name)[where].fill_(value)  # to assign it would copy it, and wait for that

    def begin(self, obs: Tensor, envs: list[int] | None = None) -> None:
        """Start episodes with these observations, in all environments or in some."""
        stacks = obs.unflatten(1, (self.stack, -1))
        for row, env in enumerate(range(len(self.pushed)) if envs is None else envs):
            self.ages[env] = 0
            for frame in stacks[row]:
                self._push(env, frame)

    def add(self, action: Tensor, step: Step) -> None:
        """Store what was done on the current observations, and what followed."""
        newest = step.next_obs[:, -self.frame_shape[0] :]
        known = action.dim() == 1 and not action.is_cuda
        chosen: Any = action.tolist() if known else action.to(self.action.device)
        reward, terminated = step.reward.tolist(), step.terminated.tolist()
        for env in range(len(self.pushed)):
            slot = (self.pushed[env] - 1) % self.slots
            if known:
                self._write("action", (env, slot), chosen[env])
            else:
                self.action[env, slot] = chosen[env]
            self._write("reward", (env, slot), reward[env])
            self._write("terminated", (env, slot), terminated[env])
            if self.priority is not None:
                self.priority[env, slot] = self.largest_priority
            self._push(env, newest[env])
            self.ages[env] += 1
            # The step that is now followed by enough; after an end, all that never will be.
            first = self.horizon - 1
            for behind in range(first, -1, -1) if terminated[env] else [first]:
                if behind < self.ages[env]:
                    self._write("usable", (env, (slot - behind) % self.slots), True)
        if step.final_index is not None:
            reset = step.final_index.tolist()
            self.begin(step.obs[step.final_index.to(step.obs.device)], reset)

    def sample(self, count: int, generator: torch.Generator) -> Batch:
        """Draw single transitions, with replacement."""
        drawn = self.draw(count, generator)
        action, reward, terminated = self.steps(drawn, 1)
        obs, next_obs = self.observations(drawn, 0, 2).unbind(1)
        return Batch(obs, action[:, 0], reward[:, 0], terminated[:, 0], next_obs)

    def packed(self, drawn: Draw) -> Tensor:
        """Return all that the host knows of single transitions as one tensor: one copy to a GPU.

        Whole numbers up to 2**53 and rewards of single precision are exact in it.
        """
        where = drawn.envs.numpy(), drawn.slots.numpy()
        known = np.empty((5, len(where[0])))
        known[0], known[1] = where
        for row, name in enumerate(("action", "reward", "terminated"), start=2):
            known[row] = self._arrays[name][where]
        return torch.from_numpy(known)

    def unpacked(self, packed: Tensor) -> Batch:
        """Return those transitions with their frames; a graph may, if these are on its GPU."""
        envs, slots, action = packed[:3].long()
        obs, next_obs = self.observations(Draw(envs, slots), 0, 2).unbind(1)
        reward, terminated = packed[3].float(), packed[4] > 0
        told = [part.to(self.device) for part in (action, reward, terminated)]
        return Batch(obs, told[0], told[1], told[2], next_obs)

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        """Draw where to start, with replacement."""
        if self.priority is None and not self.usable.is_cuda:
            # The newest frame was not acted on yet; of an episode that just began, none was.
            progress = zip(self.pushed, self.ages, strict=True)
            ends = [pushed - 1 - self.stack * (age == 0) for pushed, age in progress]
            return self._draw_by_rejection(count, generator, max(ends))
        weight = self.usable.flatten().to(torch.float64)
        if self.priority is not None:
            weight = weight * self.priority.flatten()
        upto = weight.cumsum(0)
        luck = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
        # The right side of equal sums, so that what weighs nothing is never met.
        index = torch.searchsorted(upto, luck.to(upto.device) * upto[-1], right=True)
        index = index.clamp_max(len(upto) - 1)
        return Draw(index // self.slots, index % self.slots)

    def draw_ahead(self, count: int, generator: torch.Generator) -> Draw | None:
        """Return what ``draw`` will when one more step is stored, if that step has no part in it.

        It has if it is drawn itself, or if anything is that its frames may overwrite, those of a
        fresh episode included. Then None is returned, and nothing was drawn. Single steps only, of
        a replay on the host.
        """
        before = generator.get_state()
        try:
            return self._draw_by_rejection(count, generator, max(self.pushed), ahead=True)
        except _Unknown:
            generator.set_state(before)
            return None

    def _draw_by_rejection(
        self, count: int, generator: torch.Generator, end: int, *, ahead: bool = False
    ) -> Draw:
        """Draw before an end and draw again where none can start: no pass over all slots."""
        filled, usable = min(end, self.slots), self._arrays["usable"]
        draw = functools.partial(torch.randint, generator=generator, device=generator.device)
        newest = np.array(self.pushed) - 1
        envs = slots = np.empty(0, dtype=np.int64)
        for _ in range(1_000 if filled > 0 else 0):
            missing = count - len(slots)
            more = draw(filled, (missing,)).numpy(force=True)
            of = np.zeros_like(more)
            if len(self.pushed) > 1:
                of = draw(len(self.pushed), (missing,)).numpy(force=True)
            if ahead and ((more - newest[of]) % self.slots <= 2 * self.stack).any():
                raise _Unknown
            good = usable[of, more]
            envs, slots = np.append(envs, of[good]), np.append(slots, more[good])
            if len(slots) == count:
                return Draw(torch.from_numpy(envs), torch.from_numpy(slots))
        raise RuntimeError(f"the replay holds {len(self)} transitions: too few to sample from")

    def observations(self, drawn: Draw, first: int, count: int) -> Tensor:
        """Return the observations of steps in a row, (draws, count, ...), the first so far on."""
        index = drawn.envs[:, None, None] * self.slots + self.windows(drawn, first, count)
        # Whole frames at once: on a CPU an index into several dimensions goes pixel by pixel.
        index = index.to(self.frames.device)
        frames = self._places.index_select(0, index.flatten())
        frames = frames.to(self.device, non_blocking=True)
        return frames.reshape(*index.shape[:2], -1, *self.frame_shape[1:])

    def windows(self, drawn: Draw, first: int, count: int) -> Tensor:
        """Return the slots that these observations' frames are in, (draws, count, stack)."""
        place = drawn.slots.device
        on = torch.arange(first, first + count, device=place)
        back = torch.arange(1 - self.stack, 1, device=place)
        return (drawn.slots[:, None, None] + on[:, None] + back) % self.slots

    def steps(self, drawn: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, rewards and terminations of so many steps, each (draws, count, ...)."""
        on = torch.arange(count, device=drawn.slots.device)
        where = drawn.envs[:, None], (drawn.slots[:, None] + on) % self.slots
        held = self.action[where], self.reward[where], self.terminated[where]
        action, reward, terminated = (tensor.to(self.device) for tensor in held)
        return action, reward, terminated

    def set_priority(self, drawn: Draw, priority: Tensor) -> None:
        """Give what was drawn new priorities."""
        assert self.priority is not None
        priority = priority.to(self.priority.device)
        self.priority[drawn.envs, drawn.slots] = priority
        self.largest_priority.copy_(torch.maximum(self.largest_priority, priority.max()))

    def forget_largest(self) -> None:
        """Let the largest priority be the largest one that is still held."""
        if self.priority is not None:
            self.largest_priority.copy_((self.priority * self.usable).max())

    def save_increment(self, folder: Path) -> State:
        """Write the frames pushed since the last save to a file of their own.

        Everything but the frames is returned whole. Files that no kept checkpoint can need any
        more are removed by ``prune``.
        """
        new = {}
        for env, (start, end) in enumerate(zip(self._saved, self.pushed, strict=True)):
            start = max(start, end - self.slots)
            slots = torch.arange(start, end) % self.slots
            new[str(env)] = self.frames[env, slots.to(self.frames.device)].cpu()
        if any(len(frames) for frames in new.values()):
            folder.mkdir(parents=True, exist_ok=True)
            name = f"frames-{sum(self.pushed)}.safetensors"
            digest = write_tensors(folder / name, new)
            self._chunks.append({"file": name, "sha256": digest, "end": list(self.pushed)})
        self._saved = list(self.pushed)
        oldest = [end - self.slots for end in self.pushed]
        self._chunks = [
            chunk
            for chunk in self._chunks
            if any(e > o for e, o in zip(chunk["end"], oldest, strict=True))
        ]
        return {
            "action": self.action,
            "reward": self.reward,
            "terminated": self.terminated,
            "usable": self.usable,
            "priority": self.priority,
            "largest_priority": self.largest_priority,
            "pushed": list(self.pushed),
            "ages": list(self.ages),
            "chunks": [dict(chunk) for chunk in self._chunks],
        }

    def load_increment(self, folder: Path, state: State) -> None:
        """Return to a saved state."""
        if tuple(state["action"].shape) != tuple(self.action.shape):
            raise CheckpointError(
                f"the saved replay has {tuple(state['action'].shape)} slots, this one "
                f"{tuple(self.action.shape)}"
            )
        for name in ("action", "reward", "terminated", "usable"):
            getattr(self, name).copy_(state[name])
        if self.priority is not None:
            self.priority.copy_(state["priority"])
        self.largest_priority.copy_(state["largest_priority"])
        self.pushed = list(state["pushed"])
        self.ages = list(state["ages"])
        self._saved = list(state["pushed"])
        self._chunks = list(state["chunks"])
        for chunk in self._chunks:
            path = folder / chunk["file"]
            if not path.is_file() or checksum(path) != chunk["sha256"]:
                raise CheckpointError(f"{path} is missing or damaged")
            for env, frames in read_tensors(path).items():
                end = chunk["end"][int(env)]
                slots = torch.arange(end - len(frames), end) % self.slots
                # Frames that later ones have overwritten come first, and are overwritten again.
                self.frames[int(env), slots.to(self.frames.device)] = frames.to(self.frames.device)

    @staticmethod
    def prune(folder: Path, kept: list[State]) -> None:
        """Remove files that none of the kept states names."""
        needed = {chunk["file"] for state in kept for chunk in state["chunks"]}
        if folder.is_dir():
            for path in folder.glob("frames-*"):
                if path.name not in needed:
                    path.unlink()


class _Unknown(Exception):
    """A draw hangs on a step that is not stored yet."""


def _allocate(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    storage: Storage,
    device: torch.device,
    folder: str | os.PathLike[str] | None,
) -> Tensor:
    count = math.prod(shape)
    if storage == "auto":
        needed = count * dtype.itemsize
        fits = device.type == "cuda" and 2 * needed < torch.cuda.mem_get_info(device)[0]
        storage = "device" if fits else "memory"
    if storage != "disk":
        # Untouched memory costs nothing, so a large replay grows as it fills.
        return torch.empty(shape, dtype=dtype, device=device if storage == "device" else "cpu")
    path = Path(folder or ".") / f".replay-{os.getpid()}.map"
    path.parent.mkdir(parents=True, exist_ok=True)
    tensor = torch.from_file(str(path), shared=True, size=count, dtype=dtype).view(shape)
    path.unlink()
    return tensor
