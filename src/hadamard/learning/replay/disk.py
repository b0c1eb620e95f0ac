"""The frames of a ring in files: each checkpoint writes only those that are new."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from hadamard.core.checkpoint import CheckpointError, checksum, read_tensors, write_tensors


class _Chunk(TypedDict):
    """A file of frames; for each environment, its last frames up to the count ``end``."""

    file: str
    sha256: str
    end: list[int]


class FrameFiles:
    """The files that hold a ring's frames, oldest first."""

    def __init__(self, num_envs: int) -> None:
        self.saved = [0] * num_envs
        """Frames of each environment that are in the files."""
        self.chunks: list[_Chunk] = []

    def write(self, folder: Path, frames: Tensor, pushed: list[int]) -> list[dict[str, Any]]:
        """Write the frames pushed since the last call to a new file, and list all files needed."""
        slots_of_ring = frames.shape[1]
        new = {}
        for env, (start, end) in enumerate(zip(self.saved, pushed, strict=True)):
            start = max(start, end - slots_of_ring)
            slots = torch.arange(start, end) % slots_of_ring
            new[str(env)] = frames[env, slots.to(frames.device)].cpu()
        if any(len(tensor) for tensor in new.values()):
            folder.mkdir(parents=True, exist_ok=True)
            name = f"frames-{sum(pushed)}.safetensors"
            digest = write_tensors(folder / name, new)
            self.chunks.append({"file": name, "sha256": digest, "end": list(pushed)})
        self.saved = list(pushed)
        oldest = [end - slots_of_ring for end in pushed]
        self.chunks = [
            chunk
            for chunk in self.chunks
            if any(end > first for end, first in zip(chunk["end"], oldest, strict=True))
        ]
        return [dict(chunk) for chunk in self.chunks]

    def read(self, folder: Path, frames: Tensor, pushed: list[int], chunks: list[_Chunk]) -> None:
        """Fill the ring's frames from its files."""
        self.saved, self.chunks = list(pushed), list(chunks)
        for chunk in self.chunks:
            path = folder / chunk["file"]
            if not path.is_file() or checksum(path) != chunk["sha256"]:
                raise CheckpointError(f"{path} is missing or damaged")
            for env, saved in read_tensors(path).items():
                end = chunk["end"][int(env)]
                slots = torch.arange(end - len(saved), end) % frames.shape[1]
                # Older files come first: the ring's newer frames overwrite theirs, as in training.
                frames[int(env), slots.to(frames.device)] = saved.to(frames.device)


def remove_unneeded(folder: Path, kept: list[dict[str, Any]]) -> None:
    """Remove files that none of the kept states names."""
    needed = {chunk["file"] for state in kept for chunk in state["chunks"]}
    if folder.is_dir():
        for path in folder.glob("frames-*"):
            if path.name not in needed:
                path.unlink()
