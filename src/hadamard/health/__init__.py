"""The diagnosis: dormant neurons, effective rank and hidden bias of any network."""

from hadamard import theory
from hadamard.health.bias import HiddenBias, hidden_bias
from hadamard.health.diagnosis import Diagnosis, diagnose, diagnose_together
from hadamard.health.dormant import Dormancy, dormant
from hadamard.health.drawing import save_comparison
from hadamard.health.layer import LayerHealth
from hadamard.health.monitor import Monitor
from hadamard.health.rank import effective_rank
from hadamard.health.selection import mark

__all__ = [
    "Diagnosis",
    "Dormancy",
    "HiddenBias",
    "LayerHealth",
    "Monitor",
    "diagnose",
    "diagnose_together",
    "dormant",
    "effective_rank",
    "hidden_bias",
    "mark",
    "save_comparison",
    "theory",
]
