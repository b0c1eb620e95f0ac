"""Hadamard: healthy representations in deep RL.

The names below load on first use, so that ``import hadamard`` is instant and tools that never
touch a network never import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hadamard.core.plugins import load_plugin as load_plugin
    from hadamard.health import Diagnosis as Diagnosis
    from hadamard.health import Monitor as Monitor
    from hadamard.health import diagnose as diagnose
    from hadamard.health import mark as mark
    from hadamard.layers import Hadamard as Hadamard
    from hadamard.layers import HadamardConv2d as HadamardConv2d
    from hadamard.layers import HadamardLinear as HadamardLinear
    from hadamard.layers import hadamardize as hadamardize

__version__ = "0.1.0"

_MODULE_OF = {
    "Diagnosis": "hadamard.health",
    "Hadamard": "hadamard.layers",
    "HadamardConv2d": "hadamard.layers",
    "HadamardLinear": "hadamard.layers",
    "Monitor": "hadamard.health",
    "diagnose": "hadamard.health",
    "hadamardize": "hadamard.layers",
    "load_plugin": "hadamard.core.plugins",
    "mark": "hadamard.health",
}
__all__ = [*_MODULE_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hadamard' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
