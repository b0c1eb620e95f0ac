"""Where a replay's frames are kept, and errors that say what does not fit."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

Storage = Literal["memory", "disk", "device", "auto"]

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container on Linux: a number of bytes, or the word max."""


def frames(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    storage: Storage,
    device: torch.device,
    folder: str | os.PathLike[str] | None,
) -> Tensor:
    """Allocate frames; ``auto`` is the GPU's memory if they fill at most half of what is free."""
    needed = math.prod(shape) * dtype.itemsize
    if storage == "auto":
        fits = device.type == "cuda" and 2 * needed < torch.cuda.mem_get_info(device)[0]
        storage = "device" if fits else "memory"
    if storage == "disk":
        return _on_disk(shape, dtype, Path(folder or "."))
    device = device if storage == "device" else torch.device("cpu")
    if device.type == "cpu" and needed > (limit := memory_limit()):
        # The system gives out more memory than it has, and ends a program that then fills it.
        raise MemoryError(f"this machine has {limit:,} bytes of memory")
    # Memory is reserved when it is first written: a large replay grows as it fills.
    return torch.empty(shape, dtype=dtype, device=device)


@contextmanager
def explained(capacity: int, needed: int) -> Iterator[None]:
    """Refuse a replay that cannot be allocated inside the block, with its size and the remedy."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        # Without the place in PyTorch's code that its messages begin with.
        reason = str(error).split("DefaultCPUAllocator: ")[-1].partition("\n")[0].rstrip(".")
        raise ValueError(
            f"--algo.replay-capacity: a replay of {capacity:,} steps needs {needed:,} bytes "
            f"({needed / 1e9:,.1f} GB), which are not available: {reason}. Lower it, or choose "
            "another --algo.replay-storage if the algorithm has that option"
        ) from error


def memory_limit() -> int:
    """Return the bytes of memory that this program may use at most."""
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        limit = min(limit, int(_CONTAINER_LIMIT.read_text()))
    return limit


def _on_disk(shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> Tensor:
    """Allocate in a file without a name, so that nothing is left behind.

    The disk's space is reserved now: writing to a full disk later would end the program.
    """
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = math.prod(shape) * dtype.itemsize, shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"the disk of {folder} has {free:,} bytes left")
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, needed)
        else:
            file.truncate(needed)
        content = mmap.mmap(file.fileno(), needed)
    return torch.frombuffer(content, dtype=dtype).view(shape)
