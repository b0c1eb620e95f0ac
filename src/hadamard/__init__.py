"""Hadamard: healthy representations in deep RL.

The names below load on first use, so that ``import hadamard`` is instant and tools that never
touch a network never import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hadamard.api import Evaluation as Evaluation
    from hadamard.api import LoadedAgent as LoadedAgent
    from hadamard.api import TrainedRun as TrainedRun
    from hadamard.api import evaluate as evaluate
    from hadamard.api import load_agent as load_agent
    from hadamard.api import record_video as record_video
    from hadamard.api import resume as resume
    from hadamard.api import train as train
    from hadamard.core.plugins import load_plugin as load_plugin
    from hadamard.health import Diagnosis as Diagnosis
    from hadamard.health import Monitor as Monitor
    from hadamard.health import diagnose as diagnose
    from hadamard.health import mark as mark
    from hadamard.layers import Hadamard as Hadamard
    from hadamard.layers import HadamardConv2d as HadamardConv2d
    from hadamard.layers import HadamardLinear as HadamardLinear
    from hadamard.layers import hadamardize as hadamardize
    from hadamard.report.data.frames import load_runs as load_runs
    from hadamard.training.callbacks import Event as Event

__version__ = "0.1.0"

_MODULE_OF = {
    "Diagnosis": "hadamard.health",
    "Evaluation": "hadamard.api",
    "Event": "hadamard.training.callbacks",
    "Hadamard": "hadamard.layers",
    "HadamardConv2d": "hadamard.layers",
    "HadamardLinear": "hadamard.layers",
    "LoadedAgent": "hadamard.api",
    "Monitor": "hadamard.health",
    "TrainedRun": "hadamard.api",
    "diagnose": "hadamard.health",
    "evaluate": "hadamard.api",
    "hadamardize": "hadamard.layers",
    "load_agent": "hadamard.api",
    "load_plugin": "hadamard.core.plugins",
    "load_runs": "hadamard.report.data.frames",
    "mark": "hadamard.health",
    "record_video": "hadamard.api",
    "resume": "hadamard.api",
    "train": "hadamard.api",
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
