"""Our GPU kernels, which are optional: they need Triton."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


@functools.cache
def load(name: str) -> ModuleType | None:
    """Return a module of this folder; None without Triton or with HADAMARD_KERNELS=off."""
    if os.environ.get("HADAMARD_KERNELS") == "off":
        return None
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError:
        return None
