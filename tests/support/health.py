"""Networks with sick neurons, and activations that cannot be measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hadamard import HadamardConv2d, HadamardLinear, diagnose
from hadamard.health import Diagnosis


def sick_network() -> nn.Sequential:
    """tanh, with a third of the second layer saturated by its biases."""
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 30), nn.Tanh(), nn.Linear(30, 4))
    with torch.no_grad():
        net[2].bias[:10] = torch.tensor([9.0, -9.0]).repeat(5)
    return net


def nature_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(4, 8, 8, stride=4),
        nn.ReLU(inplace=True),
        HadamardConv2d(8, 16, 4, stride=2, activation="relu"),
        nn.Flatten(),
        nn.Linear(16 * 81, 64),
        nn.Tanh(),
        HadamardLinear(64, 32),
        nn.Linear(32, 6),
    )


def assert_same_health(together: Diagnosis | ValueError, alone: Diagnosis) -> None:
    """Compare integers, names and flags exactly, and other numbers up to rounding."""
    assert isinstance(together, Diagnosis)
    assert (together.model, together.observations) == (alone.model, alone.observations)
    assert (together.threshold, together.delta) == (alone.threshold, alone.delta)
    for ours, expected in zip(together, alone, strict=True):
        for name, value in expected.to_dict().items():
            actual = ours.to_dict()[name]
            assert type(actual) is type(value), name
            if isinstance(value, float):
                assert actual == pytest.approx(value, rel=1e-5, abs=1e-7), name
            else:
                assert actual == value, name
        assert ours.dormant_mask.tolist() == expected.dormant_mask.tolist()
        assert ours.plotted_neurons.tolist() == expected.plotted_neurons.tolist()
        np.testing.assert_allclose(ours.plotted_samples, expected.plotted_samples, atol=1e-6)


BAD_ACTIVATIONS = {
    "empty batch": (torch.zeros(0, 4), ValueError, "batch of at least 2 observations, got 0"),
    "batch of 1": (torch.zeros(1, 4), ValueError, "batch of at least 2 observations, got 1"),
    "no neurons": (torch.zeros(4, 0), ValueError, r"empty: shape \(4, 0\)"),
    "complex": (torch.zeros(4, 4).cfloat(), TypeError, r"must be real, got torch.complex64: .*abs"),
    "integers": (torch.zeros(4, 4).int(), TypeError, r"got torch.int32; convert with .float\(\)"),
    "wrong rank": (torch.zeros(4), ValueError, r"at least 2 dimensions .* got shape \(4,\)"),
    "a list": ([[0.0, 1.0]], TypeError, "or an array of NumPy or JAX, got list"),
    "words": (np.array([["a", "b"]]), TypeError, "must be numbers, got an array of <U1"),
    "nan": (
        torch.tensor([[0.0, 1.0], [0.0, float("nan")]]),
        ValueError,
        r"1 NaN or infinite values .*the first in neuron 1 at sample 1 \(nan\)",
    ),
    "beyond float64's squares": (
        torch.full((3, 2), 1e200, dtype=torch.float64),
        ValueError,
        r"beyond 1e\+100\), the first in neuron 0",
    ),
    "inf": (torch.full((3, 2), float("inf")), ValueError, "6 NaN or infinite values"),
}


class Net(nn.Sequential):
    """A network whose name must be escaped in HTML."""


Net.__name__ = "Net<script>&"


def sick() -> Diagnosis:
    net = Net(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2))
    with torch.no_grad():
        net[2].bias[:10] = 9
    return diagnose(net, 2 * torch.randn(300, 6))
