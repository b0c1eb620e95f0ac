"""What a run trains on: the device, how it computes there, and its name."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hadamard.core.config import TrainSpec


def choose_device(name: str) -> torch.device:
    """Return the device asked for, or the best one for ``auto``."""
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
        torch.cuda.set_device(device)  # streams and graphs are the current device's
    return device


@contextmanager
def computing(train: TrainSpec, device: torch.device) -> Iterator[None]:
    """Set PyTorch up as a run asks for, and back to what it was."""
    _keep_memory()
    before = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
    )
    on_gpu = device.type == "cuda"
    # Beside a GPU, threads that wait for work would only take cores from the environments.
    threads = train.threads or (1 if on_gpu else before[0])
    _compute(threads, "high" if train.tf32 and on_gpu else "highest", train.conv_search and on_gpu)
    try:
        yield
    finally:
        _compute(*before)


def _compute(threads: int, precision: str, conv_search: bool) -> None:
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = conv_search


@functools.cache
def _keep_memory() -> None:
    """Let glibc keep memory that is freed, which the next update asks for again.

    By default it hands large blocks back to the system, and every page of new ones is a trap into
    the kernel, thousands in an update. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, mmap_threshold = -1, -3  # as malloc.h numbers them
    mallopt(mmap_threshold, 32 << 20)  # the most it takes: larger blocks are still handed back
    mallopt(trim_threshold, 1 << 30)


def describe(device: torch.device) -> str:
    """Name the GPU, or the processor and how many cores this process may use."""
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
