"""Seconds by part of the work, and of the whole run."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from hadamard.training.clock import Clock


def test_parts_add_up_and_earlier_processes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    clock = Clock()
    clock.seconds_before = 40.0
    for seconds in (1.5, 0.25):
        with clock("acting"):
            now += seconds
    with suppress(KeyboardInterrupt), clock("learning"):
        now += 3.0
        raise KeyboardInterrupt
    now += 0.2504
    assert clock.seconds == pytest.approx(45.0004)
    parts = {"acting": 1.75, "learning": 3.0}
    assert clock.row(7) == {"step": 7, "seconds": 45.0, "parts": parts}
