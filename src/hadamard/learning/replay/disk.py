"""The frames of a ring in files: each checkpoint writes only those that are new."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from hadamard.core import files
from hadamard.core.checkpoint import CheckpointError, checksum, read_tensors, serialized
from hadamard.core.typed import WrongType, checked

_NAME = re.compile(r"frames-\d+\.safetensors")


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
            data = serialized(new)
            files.write_atomically(folder / name, data)
            digest = hashlib.sha256(data).hexdigest()
            self.chunks.append({"file": name, "sha256": digest, "end": list(pushed)})
        self.saved = list(pushed)
        oldest = [end - slots_of_ring for end in pushed]
        self.chunks = [
            chunk
            for chunk in self.chunks
            if any(end > first for end, first in zip(chunk["end"], oldest, strict=True))
        ]
        return [dict(chunk) for chunk in self.chunks]

    def read(self, folder: Path, frames: Tensor, pushed: list[int], chunks: Any) -> None:
        """Fill the ring's frames from its files."""
        self.saved, self.chunks = list(pushed), _checked(chunks)
        for chunk in self.chunks:
            path = folder / chunk["file"]
            if not files.is_file(path) or checksum(path) != chunk["sha256"]:
                raise CheckpointError(f"{path} is missing or damaged")
            for env, saved in read_tensors(path).items():
                end = chunk["end"][int(env)]
                slots = torch.arange(end - len(saved), end) % frames.shape[1]
                # Older files come first: the ring's newer frames overwrite theirs, as in training.
                frames[int(env), slots.to(frames.device)] = saved.to(frames.device)


def _checked(chunks: Any) -> list[_Chunk]:
    """Return the files that a checkpoint names, which must be names that ``write`` gives."""
    chunks = checked(chunks, list[dict[str, Any]], "chunks")
    for chunk in chunks:
        for key, kind in (("file", str), ("sha256", str), ("end", list[int])):
            checked(chunk.get(key), kind, f"chunks.{key}")
        if not _NAME.fullmatch(chunk["file"]):
            raise WrongType(f"chunks.file must be frames-N.safetensors, got {chunk['file']!r}")
    return list(chunks)


def remove_unneeded(folder: Path, saved: Iterable[dict[str, Any]]) -> None:
    """Remove files of frames that none of the saved states names, and unfinished ones."""
    needed = {chunk["file"] for state in saved for chunk in _checked(state["chunks"])}
    if not files.is_folder(folder):
        return
    for name in os.listdir(folder):
        ours = _NAME.fullmatch(name) and name not in needed
        unfinished = _NAME.fullmatch(files.finished_name(name) or "")
        if (ours or unfinished) and files.is_file(folder / name):
            (folder / name).unlink()
