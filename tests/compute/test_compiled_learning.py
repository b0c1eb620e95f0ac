"""Compiled learning equals eager learning."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.updates import agent_of, batch_of


def differences(
    algorithm: str, dtype: torch.dtype, updates: int, **net: str
) -> tuple[float, float]:
    """Return the difference between eager and compiled weights, and how far both moved."""
    changes = {f"net.{name}": value for name, value in net.items()}
    eager, compiled = (
        agent_of(algorithm, dtype, {**changes, "train.compile": way}) for way in ("off", "on")
    )
    assert eager.loss == eager._loss
    assert compiled.loss != compiled._loss
    start = eager.weights.vector.detach().clone()
    for i in range(updates):
        batch = batch_of(algorithm, size=16)
        ours, theirs = compiled.learn(*batch), eager.learn(*batch)
        if i == 0:
            for name, value in theirs.items():
                torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-6)
    assert all(type(value) is Tensor and not value.requires_grad for value in ours.values())
    ours, theirs = compiled.weights.vector.detach(), eager.weights.vector.detach()
    return float((ours - theirs).abs().max()), float((theirs - start).abs().max())


@pytest.mark.parametrize(
    ("algorithm", "layer", "activation", "norm"),
    [
        ("pqn", "hadamard", "tanh", "layer"),
        ("pqn", "crelu", "relu", "none"),
        ("dqn", "hadamard", "tanh", "none"),
        ("ppo", "hadamard", "tanh", "none"),
    ],
)
def test_compiled_learning_equals_eager_learning(
    algorithm: str, layer: str, activation: str, norm: str
) -> None:
    net = {"layer": layer, "activation": activation, "norm": norm}
    difference, moved = differences(algorithm, torch.float32, 100, **net)
    assert difference < 2e-6
    assert moved > 0.002  # a thousand times the difference


def test_a_thousand_compiled_updates_equal_eager_ones() -> None:
    # In double precision, where rounding alone makes very small differences.
    net = {"layer": "hadamard", "activation": "tanh", "norm": "layer"}
    difference, moved = differences("pqn", torch.float64, 1_000, **net)
    assert moved > 0.03
    assert difference < 1e-13
