"""The machine a run trains on: choosing the device, PyTorch's settings, and its description."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from hadamard.core.config import TrainSpec


def choose_device(name: str) -> torch.device:
    """Return the device with this name; for ``auto``, the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device must be auto, cpu or cuda[:N], got {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device must be auto, cpu or cuda[:N], got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {name}: torch sees no such GPU here; use --device cpu")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # streams and graphs use the current device
    return device


@contextmanager
def torch_settings(train: TrainSpec, device: torch.device) -> Iterator[None]:
    """Apply a run's PyTorch settings inside the block, and restore the earlier ones afterwards.

    They are one for the whole process. While several runs train in it, in whatever threads, those
    of the newest hold; the process's own are restored when the last one ends.
    """
    _keep_freed_memory()
    with _LOCK:
        own = _TorchSettings.of_run(train, device, _in_use[0] if _in_use else None)
        if not _in_use:
            _in_use.append(_TorchSettings.present())
        _in_use.append(own)
        own.apply()
    try:
        yield
    finally:
        with _LOCK:
            _in_use.remove(own)
            _in_use[-1].apply()
            if len(_in_use) == 1:
                _in_use.clear()


@dataclass(frozen=True, eq=False)
class _TorchSettings:
    """PyTorch's settings of a process; two of equal values are two runs'."""

    threads: int
    precision: str
    conv_search: bool

    @classmethod
    def present(cls) -> _TorchSettings:
        """Return the settings that hold now."""
        return cls(
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.benchmark,
        )

    @classmethod
    def of_run(
        cls, train: TrainSpec, device: torch.device, process: _TorchSettings | None
    ) -> _TorchSettings:
        """Return a run's settings; ``process`` are those from before any run, if one trains."""
        on_gpu = device.type == "cuda"
        # With a GPU, more CPU threads would only take cores from the environments.
        threads = 1 if on_gpu else (process or cls.present()).threads
        precision = "high" if train.tf32 and on_gpu else "highest"
        return cls(train.threads or threads, precision, train.conv_search and on_gpu)

    def apply(self) -> None:
        """Make these the settings of the process."""
        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision(self.precision)
        torch.backends.cudnn.benchmark = self.conv_search


_LOCK = threading.Lock()
_in_use: list[_TorchSettings] = []
"""The process's own settings, then those of each run that trains; empty if none does."""


@functools.cache
def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next update.

    By default it returns large blocks to the system. Allocating them again costs a page fault per
    page, thousands per update. Other C libraries are not changed.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, mmap_threshold = -1, -3  # the numbers in malloc.h
    mallopt(mmap_threshold, 32 << 20)  # the maximum: larger blocks are still returned
    mallopt(trim_threshold, 1 << 30)


def describe(device: torch.device) -> str:
    """Return the GPU's name, or the processor's name and the number of cores we may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(errors="replace").splitlines()
        models = [line for line in lines if line.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {usable} cores"
