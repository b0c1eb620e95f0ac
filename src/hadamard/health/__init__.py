"""The diagnosis: dormant neurons, ranks, hidden bias and more, of any network."""

from hadamard import theory
from hadamard.health.bias import HiddenBias, hidden_bias
from hadamard.health.change import (
    gradient_norm,
    policy_churn,
    update_ratio,
    value_churn,
    weight_norm,
)
from hadamard.health.diagnosis import Diagnosis, diagnose, diagnose_together
from hadamard.health.dormant import Dormancy, dormant
from hadamard.health.drawing import save_comparison
from hadamard.health.inactive import gradient_dormant, tau_dormant
from hadamard.health.layer import LayerHealth
from hadamard.health.monitor import Monitor
from hadamard.health.network import random_residuals, weights_of
from hadamard.health.rank import effective_rank, entropy_rank, stable_rank
from hadamard.health.selection import mark
from hadamard.health.tangent import ntk_rank

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
    "entropy_rank",
    "gradient_dormant",
    "gradient_norm",
    "hidden_bias",
    "mark",
    "ntk_rank",
    "policy_churn",
    "random_residuals",
    "save_comparison",
    "stable_rank",
    "tau_dormant",
    "theory",
    "update_ratio",
    "value_churn",
    "weight_norm",
    "weights_of",
]
