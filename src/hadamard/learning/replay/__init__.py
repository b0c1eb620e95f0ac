"""Replay that keeps each frame once, draws from it and saves it in increments.

``allocation`` finds a place for the frames, ``ring`` stores and reads, ``sampling`` draws,
``packing`` moves a batch to a GPU in one copy, and ``disk`` writes the frames of checkpoints.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from hadamard.core.checkpoint import CheckpointError
from hadamard.core.typed import counts
from hadamard.core.types import EnvSpec, State
from hadamard.learning.replay import disk, packing, sampling
from hadamard.learning.replay.allocation import Storage
from hadamard.learning.replay.packing import Batch
from hadamard.learning.replay.ring import Indices, Ring

__all__ = ["Batch", "Indices", "Replay", "Storage", "capacity_for"]


def capacity_for(limit: int, steps: int, num_envs: int) -> int:
    """Return how many slots a run of so many steps needs, up to ``limit``.

    A short run then reserves no memory that it never fills. Episodes store a few frames more than
    they have steps.
    """
    return min(limit, 2 * steps + 64 * num_envs)


class Replay(Ring):
    """The newest transitions of each environment, to be drawn at random.

    ``storage`` says where the frames are kept: in memory, memory-mapped on disk (in a file without
    a name, so that nothing is left behind), on the learner's device, or there if they need at most
    half of its free memory (``auto``). Everything else is kept, and drawn, where the
    frames are: on a GPU no call waits for the host, so a captured graph can draw. With ``on_host``
    everything but the frames stays on the CPU: storing a step is then one copy to a GPU, not a
    dozen, and draws are made on the CPU (``pack``), optionally one step ahead (``draw_ahead``).

    All transitions are equally likely; where they are ``prioritized``, each in proportion to its
    priority. A new one has the largest priority since ``reset_largest_priority``.
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
        prioritized: bool = False,
        on_host: bool = False,
    ) -> None:
        super().__init__(
            env, num_envs, capacity, device, storage, folder, horizon, prioritized, on_host
        )
        self.files = disk.FrameFiles(num_envs)

    def require_drawable(self) -> None:
        """Raise an error if nothing can be drawn yet."""
        if len(self) == 0:
            raise ValueError(
                f"no episode has lasted the {self.horizon} steps of a draw yet: raise "
                "--algo.random-steps, or lower --algo.encoder-horizon and --algo.value-horizon"
            )

    def sample(self, count: int, generator: torch.Generator) -> Batch:
        """Draw single transitions, with replacement."""
        indices = self.draw(count, generator)
        action, reward, terminated = self.steps(indices, 1)
        obs, next_obs = self.observations(indices, 0, 2).unbind(1)
        return Batch(obs, action[:, 0], reward[:, 0], terminated[:, 0], next_obs)

    def draw(self, count: int, generator: torch.Generator) -> Indices:
        """Draw where to start, with replacement."""
        return sampling.draw(self, count, generator)

    def draw_ahead(self, count: int, generator: torch.Generator) -> Indices | None:
        """Draw as after one more step; None if the draw depends on that step."""
        return sampling.draw_ahead(self, count, generator)

    def pack(self, indices: Indices) -> Tensor:
        """Return single transitions without their frames, as one CPU tensor."""
        return packing.pack(self, indices)

    def unpack(self, packed: Tensor) -> Batch:
        """Return packed transitions with their frames."""
        return packing.unpack(self, packed)

    def set_priority(self, indices: Indices, priority: Tensor) -> None:
        """Set the priorities of these transitions."""
        assert self.priority is not None
        priority = priority.to(self.priority.device)
        self.priority[indices.envs, indices.slots] = priority
        self.largest_priority.copy_(torch.maximum(self.largest_priority, priority.max()))

    def reset_largest_priority(self) -> None:
        """Lower the largest priority to that of the transitions that can be drawn now."""
        if self.priority is not None:
            self.largest_priority.copy_((self.priority * self.usable).max())

    def save_increment(self, folder: Path) -> State:
        """Write the frames pushed since the last save, and return everything else.

        ``prune`` removes files that no kept checkpoint needs any more.
        """
        pushed, ages = ([int(count) for count in counts] for counts in (self.pushed, self.ages))
        return {
            "action": self.action,
            "reward": self.reward,
            "terminated": self.terminated,
            "usable": self.usable,
            "priority": self.priority,
            "largest_priority": self.largest_priority,
            "pushed": pushed,
            "ages": ages,
            "chunks": self.files.write(folder, self.frames, pushed),
        }

    def load_increment(self, folder: Path, state: State) -> None:
        """Restore a saved state."""
        saved, own = tuple(state["action"].shape), tuple(self.action.shape)
        if saved != own and not (len(saved) == len(own) and saved[1] < own[1]):
            raise CheckpointError(f"the saved replay has {saved} slots, this one {own}")
        names = ["action", "reward", "terminated", "usable"]
        for name in [*names, *(["priority"] if self.priority is not None else [])]:
            tensor = getattr(self, name)
            if saved == own:
                tensor.copy_(state[name])
                continue
            tensor.zero_()  # the ring has grown: the run was extended
            for env, end in enumerate(state["pushed"]):
                frames = torch.arange(max(0, end - saved[1]), end)
                kept = state[name][env, frames % saved[1]]
                tensor[env, (frames % own[1]).to(tensor.device)] = kept.to(tensor.device)
        self.largest_priority.copy_(state["largest_priority"])
        self.pushed = counts(state["pushed"], len(self.pushed), "pushed")
        self.ages = counts(state["ages"], len(self.ages), "ages")
        self.files.read(folder, self.frames, self.pushed, state["chunks"])

    @staticmethod
    def prune(folder: Path, kept: list[State]) -> None:
        """Remove files that none of the kept states names."""
        disk.remove_unneeded(folder, kept)
