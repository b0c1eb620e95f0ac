"""Replay that keeps each frame once.

Every environment has a ring of slots, and a slot is one frame with what was done on seeing it.
An observation of k stacked frames is k neighbouring slots, its successor the same one slot on:
a million Atari transitions are a million frames (7.1 GB), not eight million. A fresh episode
brings all k frames of its first observation, so every stack is exactly the one that was seen.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import torch
from torch import Tensor

from hadamard.core.checkpoint import CheckpointError, checksum, read_tensors, write_tensors
from hadamard.core.types import EnvSpec, State, Step

Storage = Literal["memory", "disk", "device"]


class Batch(NamedTuple):
    """Transitions on the learner's device."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    next_obs: Tensor


class _Chunk(TypedDict):
    """A file of frames: those of each environment up to these counts."""

    file: str
    sha256: str
    end: list[int]


class Replay:
    """A ring of frames for each environment, sampled uniformly over all whole transitions.

    ``storage`` says where the frames live: in memory, memory-mapped on disk (in a file that is
    unlinked at once, so nothing is left behind), or on the learner's device. What was done is
    small and always in memory, where indices are drawn.
    """

    def __init__(
        self,
        env: EnvSpec,
        num_envs: int,
        capacity: int,
        device: torch.device,
        storage: Storage = "memory",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.stack = env.frames
        self.slots = capacity // num_envs
        if self.slots < 4 * self.stack:
            raise ValueError(
                f"a replay of {capacity} for {num_envs} environments is too small: "
                f"at least {4 * self.stack * num_envs} are needed"
            )
        self.device = device
        self.frame_shape = (env.obs_shape[0] // self.stack, *env.obs_shape[1:])
        shape = (num_envs, self.slots, *self.frame_shape)
        self.frames = _allocate(shape, env.obs_dtype, storage, device, folder)
        grid = (num_envs, self.slots)
        self.action = torch.zeros(grid, dtype=torch.int64)
        self.reward = torch.zeros(grid)
        self.terminated = torch.zeros(grid, dtype=torch.bool)
        self.usable = torch.zeros(grid, dtype=torch.bool)
        self.pushed = [0] * num_envs
        """Frames ever pushed by each environment; the newest is the current observation's."""
        self._saved = [0] * num_envs
        self._chunks: list[_Chunk] = []

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled."""
        return int(self.usable.sum())

    @property
    def nbytes(self) -> int:
        """Memory of a full replay."""
        held = (self.frames, self.action, self.reward, self.terminated, self.usable)
        return sum(tensor.nbytes for tensor in held)

    def _push(self, env: int, frame: Tensor) -> None:
        slot = self.pushed[env] % self.slots
        self.frames[env, slot] = frame
        self.pushed[env] += 1
        # Stacks that reach back over this slot have lost a frame.
        for offset in range(self.stack):
            self.usable[env, (slot + offset) % self.slots] = False

    def begin(self, obs: Tensor, envs: list[int] | None = None) -> None:
        """Start episodes with these observations, in all environments or in some."""
        stacks = obs.unflatten(1, (self.stack, -1))
        for row, env in enumerate(range(len(self.pushed)) if envs is None else envs):
            for frame in stacks[row]:
                self._push(env, frame)

    def add(self, action: Tensor, step: Step) -> None:
        """Store what was done on the current observations, and what followed."""
        newest = step.next_obs.unflatten(1, (self.stack, -1))[:, -1]
        reward, terminated = step.reward.cpu(), step.terminated.cpu()
        for env in range(len(self.pushed)):
            slot = (self.pushed[env] - 1) % self.slots
            self.action[env, slot] = action[env]
            self.reward[env, slot] = reward[env]
            self.terminated[env, slot] = terminated[env]
            self._push(env, newest[env])
            self.usable[env, slot] = True
        if step.final_index is not None:
            ended = step.final_index.tolist()
            self.begin(step.obs[step.final_index.to(step.obs.device)], ended)

    def sample(self, count: int, generator: torch.Generator) -> Batch:
        """Draw transitions uniformly, with replacement."""
        envs, slots = self._indices(count, generator)
        around = torch.arange(1 - self.stack, 2)
        window = (slots.unsqueeze(1) + around) % self.slots
        place = self.frames.device
        frames = self.frames[envs.unsqueeze(1).to(place), window.to(place)]
        frames = frames.to(self.device, non_blocking=True)
        return Batch(
            frames[:, :-1].flatten(1, 2),
            self.action[envs, slots].to(self.device),
            self.reward[envs, slots].to(self.device),
            self.terminated[envs, slots].to(self.device),
            frames[:, 1:].flatten(1, 2),
        )

    def _indices(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw among all filled slots and draw again where one is not a whole transition."""
        filled = min(max(self.pushed), self.slots)
        envs = torch.randint(len(self.pushed), (count,), generator=generator)
        slots = torch.randint(filled, (count,), generator=generator)
        for _ in range(1_000):
            wrong = ~self.usable[envs, slots]
            missing = int(wrong.sum())
            if missing == 0:
                return envs, slots
            envs[wrong] = torch.randint(len(self.pushed), (missing,), generator=generator)
            slots[wrong] = torch.randint(filled, (missing,), generator=generator)
        raise RuntimeError(f"the replay holds {len(self)} transitions: too few to sample from")

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
            "pushed": list(self.pushed),
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
        self.pushed = list(state["pushed"])
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


def _allocate(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    storage: Storage,
    device: torch.device,
    folder: str | os.PathLike[str] | None,
) -> Tensor:
    if storage != "disk":
        # Untouched memory costs nothing, so a large replay grows as it fills.
        return torch.empty(shape, dtype=dtype, device=device if storage == "device" else "cpu")
    path = Path(folder or ".") / f".replay-{os.getpid()}.map"
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 1
    for extent in shape:
        count *= extent
    tensor = torch.from_file(str(path), shared=True, size=count, dtype=dtype).view(shape)
    path.unlink()
    return tensor
