"""A linear schedule stays at its end."""

from __future__ import annotations

import pytest

from hadamard.learning.schedule import linear


def test_a_linear_schedule_stays_at_its_end() -> None:
    values = [linear(1.0, 0.2, 8, step) for step in (0, 2, 8, 9, 10**9)]
    assert values == pytest.approx([1.0, 0.8, 0.2, 0.2, 0.2], abs=1e-12)
    assert linear(1.0, 0.2, 0, 0) == 0.2
