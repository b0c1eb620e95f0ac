"""GPU kernels of our own: an option, where Triton is there to compile them."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


@functools.cache
def load(module: str) -> ModuleType | None:
    """Return a module of kernels; None without Triton, or with HADAMARD_KERNELS=off around."""
    if os.environ.get("HADAMARD_KERNELS") == "off":
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
