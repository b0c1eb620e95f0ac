"""A series of numbers is smoothed over the last 100."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from hadamard.report.data.series import Series


def test_smoothing_is_the_mean_of_the_last_100_up_to_a_step() -> None:
    series = Series(np.arange(1, 151), np.arange(1.0, 151.0))
    # Before the first; the first; the mean of 1..50; of 1..100; of 51..150; of the same later on.
    smooth = series.smoothed([0, 1, 50, 100, 150, 999])
    np.testing.assert_allclose(smooth, [np.nan, 1, 25.5, 50.5, 100.5, 100.5])
    assert np.isnan(Series(np.array([], np.int64), np.array([])).smoothed([5])).all()
