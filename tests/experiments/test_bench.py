"""The benchmark measures every part of training."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hadamard.experiments.bench import Bench, Timing, measure, table, variant_training

pytest.importorskip("matplotlib")
pytest.importorskip("minatar")


def test_the_benchmark_measures_every_part() -> None:
    request = Bench(env="probe/both", algorithms=("ppo",), seconds=0.05)
    for timing, diagnosis in measure("ppo", request).values():
        assert timing.steps > 0
        assert all(timing.parts[part] > 0 for part in ("acting", "stepping", "learning"))
        assert sum(timing.parts.values()) <= timing.seconds
        assert diagnosis > 0


def test_runs_that_keep_checkpoints_are_measured_without(tmp_path: Path) -> None:
    kept = {"train.checkpoint_every": 64, "train.keep_every": 128}
    run = tmp_path / "run"
    with closing(variant_training("ppo", "probe/both", "ReLU", "cpu", run, kept)) as training:
        assert training.measure(0.01).steps > 0


def test_the_table_shows_rates_and_shares() -> None:
    parts = {"acting": 0.5, "stepping": 1.0, "learning": 2.25, "greedy play": 0.25}
    slow = Timing(steps=2_000, seconds=4.0, parts=parts)
    fast = Timing(steps=6_000, seconds=4.0, parts=parts)
    lines = table("on a machine", {"pqn": {"ReLU": (fast, 1e-6), "tanh + HR": (slow, 4e-6)}})
    assert [line.split() for line in lines.splitlines()[2:]] == [
        ["pqn", "ReLU", "1,500", "1.00", "12.5%", "25.0%", "56.2%", "6.2%", "0.1%"],
        ["pqn", "tanh", "+", "HR", "500", "0.33", "12.5%", "25.0%", "56.2%", "6.2%", "0.2%"],
    ]
