"""The measured cost of one run."""

from __future__ import annotations

import pytest

from hadamard.core.config import overridden
from hadamard.experiments import cost, paper
from hadamard.experiments.cost import Cost
from hadamard.experiments.grid import Job


def test_a_measurement_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    broken = Job("dqn", overridden(job.spec, {"algo.batch_size": 0}))
    reason = cost.measure(broken)
    assert isinstance(reason, str)
    assert "batch-size must be at least 1" in reason
    monkeypatch.setattr(cost, "TIME_LIMIT", 0.01)
    assert cost.measure(job) == "nothing was measured within 0 s"


def test_a_cost_includes_everything_that_a_run_does() -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    measured = Cost(
        steps_per_second=100,
        learning_seconds=0.005,
        start_seconds=2.0,
        diagnosis_seconds=0.1,
        evaluation_seconds=3.0,
        saving_seconds=0.2,
        memory_bytes=1_000,
        gpu_memory_bytes=0,
        frame_bytes=10,
        checkpoint_bytes=500,
        episode_bytes_per_step=2.0,
        log_bytes=11,
        diagnosis_bytes=7,
        density_bytes=30,
        load=1.0,
        date="today",
    )
    # 2,000 steps, the first 200 without learning; 10 diagnoses and checkpoints; one evaluation.
    train = job.spec.train
    assert (train.steps, train.health_every, train.checkpoint_every) == (2_000, 200, 200)
    assert measured.seconds(job.spec) == pytest.approx(2 + 20 - 1 + 10 * 0.1 + 10 * 0.2 + 3)
    assert measured.bytes_in_memory(job.spec) == 1_000 + 2_000 * 10
    logs = 11 * (train.steps // train.log_every)
    assert measured.bytes_on_disk(job.spec) == 2 * 500 + 20_000 + 4_000 + logs + 70 + 300
