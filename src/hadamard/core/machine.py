"""What a run trained on, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


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
