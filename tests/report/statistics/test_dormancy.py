"""Dormant fractions without and with HR, beside the prediction."""

from __future__ import annotations

import numpy as np
import pytest

from hadamard.report.statistics.dormancy import mean_dormancy, task_dormancy


def test_the_intervals_of_fractions_end_at_0_and_1() -> None:
    few, many = np.array([0.0, 0.0, 0.3]), np.array([0.7, 1.0, 1.0])
    # Student's interval of three seeds is 4.3027 standard errors of 0.1 to either side.
    for without, with_hr in ((few, many), (many, few)):
        dormancy = task_dormancy(without, with_hr, "tanh")
        for fractions, measured in ((without, dormancy.without), (with_hr, dormancy.measured)):
            low, high = (0.0, 0.53027) if fractions is few else (0.46973, 1.0)
            assert measured == pytest.approx((fractions.mean(), low, high), abs=1e-5)


def test_a_prediction_over_tasks_is_the_mean_of_theirs() -> None:
    """A pair of ReLUs is dormant if either is: d (2 - d), of tasks with 0 and 0.5: 0 and 0.75."""
    without = {"a": np.array([0.0, 0.0]), "b": np.array([0.4, 0.6])}
    with_hr = {"a": np.array([0.0, 0.0]), "b": np.array([0.8, 0.8])}
    dormancy = mean_dormancy(without, with_hr, "relu")
    assert dormancy.without.value == pytest.approx(0.25)
    assert dormancy.predicted == pytest.approx(0.375)
    assert dormancy.predicted_change == pytest.approx(0.5)
    assert dormancy.measured_change == pytest.approx(0.6)
    # Both draws of the second task are 0.4, or both 0.6, in a quarter of the resamples each.
    assert dormancy.without == pytest.approx((0.25, 0.2, 0.3))
