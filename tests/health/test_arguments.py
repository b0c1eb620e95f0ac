"""Measures raise clear errors for activations and arguments they cannot use."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hadamard.health import dormant, effective_rank, hidden_bias, theory
from tests.support.health import BAD_ACTIVATIONS


@pytest.mark.parametrize("case", BAD_ACTIVATIONS)
@pytest.mark.parametrize("measure", [dormant, effective_rank])
def test_bad_activations_are_refused_with_the_reason(case: str, measure) -> None:
    activations, error, message = BAD_ACTIVATIONS[case]
    with pytest.raises(error, match=message):
        measure(activations)


def test_other_bad_arguments() -> None:
    z = torch.randn(8, 4)
    with pytest.raises(ValueError, match="kind must be 'relu', 'tanh' or 'auto', got 'elu'"):
        dormant(z, "elu")
    with pytest.raises(ValueError, match="threshold must be positive, got 0"):
        dormant(z, threshold=0)
    with pytest.raises(ValueError, match="delta must lie between 0 and 1, got 1.5"):
        effective_rank(z, delta=1.5)
    with pytest.raises(ValueError, match="positions must be 'samples' or 'neurons', got 'mean'"):
        dormant(z, positions="mean")
    with pytest.raises(ValueError, match=r"feature_dim 3 does not fit"):
        dormant(z, feature_dim=3)
    with pytest.raises(TypeError, match="linear or convolutional, got ReLU"):
        hidden_bias(z, nn.ReLU(), torch.zeros(4).bool())
    with pytest.raises(TypeError, match="mask must be boolean"):
        hidden_bias(z, nn.Linear(4, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="mask has 3 entries"):
        hidden_bias(z, nn.Linear(4, 2), torch.zeros(3).bool())
    with pytest.raises(ValueError, match="p is a fraction between 0 and 1, got 1.2"):
        theory.predicted_dormant(1.2, "tanh")
    with pytest.raises(ValueError, match="covers 'tanh' and 'relu', got 'elu'"):
        theory.predicted_dormant(0.2, "elu")
    with pytest.raises(ValueError, match="measured is a fraction"):
        theory.Comparison("tanh", 0.2, -1)


def test_huge_finite_values_are_accepted() -> None:
    z = torch.full((4, 3), 3e38)
    assert dormant(z, "tanh").count == 3
