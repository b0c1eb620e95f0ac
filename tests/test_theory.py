"""The dormant fraction that the paper's theory predicts."""

from __future__ import annotations

import pytest
import torch

from hadamard.health import theory


def test_theory_agrees_with_the_papers_table_1() -> None:
    tanh = theory.Comparison("tanh", without=0.39, measured=0.30)
    relu = theory.Comparison("relu", without=0.62, measured=0.73)
    assert tanh.predicted == pytest.approx(0.39**2)
    assert relu.predicted == pytest.approx(2 * 0.62 - 0.62**2)
    assert round(100 * tanh.measured_change) == -23
    assert round(100 * relu.measured_change) == 18
    # The predicted change is -(p - p^2) and +(p - p^2), relative to p.
    assert tanh.predicted_change == pytest.approx(-(0.39 - 0.39**2) / 0.39)
    assert relu.predicted_change == pytest.approx((0.62 - 0.62**2) / 0.62)
    assert "predicted 0.15 (-61%), measured 0.30 (-23%)" in str(tanh)
    assert theory.Comparison("tanh", 0.0, 0.1).measured_change is None
    assert "n/a" in str(theory.Comparison("tanh", 0.0, 0.1))


def test_independent_dormant_branches_agree_with_the_theory() -> None:
    p, n = 0.4, 40_000
    first, second = (torch.rand(n) < p for _ in range(2))
    measured = {"tanh": (first & second), "relu": (first | second)}
    for activation, dormant in measured.items():
        expected = theory.predicted_dormant(p, activation)
        assert float(dormant.float().mean()) == pytest.approx(expected, abs=0.01)
