"""The cost of runs, as it is measured and summed."""

from __future__ import annotations

import pytest

from hadamard.core.config import overridden
from hadamard.experiments import estimate, paper
from hadamard.experiments.estimate import Cost
from hadamard.experiments.grid import Job


def test_a_measurement_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    broken = Job("dqn", overridden(job.spec, {"algo.batch_size": 0}))
    reason = estimate.measure(broken)
    assert isinstance(reason, str)
    assert "batch-size must be at least 1" in reason
    monkeypatch.setattr(estimate, "TIME_LIMIT", 0.01)
    assert estimate.measure(job) == "nothing was measured within 0 s"


@pytest.mark.parametrize("cached", ["[]", '{"KEY": 7}', '{"KEY": {"steps_per_second": "fast"}}'])
def test_a_damaged_cache_is_measured_again(cached: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    file = estimate.cache_file()
    file.parent.mkdir(parents=True)
    file.write_text(cached.replace("KEY", "kind"))
    monkeypatch.setattr(estimate, "measure", lambda job, threads: "measured again")
    kinds = {"kind": estimate.LabeledJob("tanh", job)}
    assert estimate.costs_of_kinds(kinds, 1) == {"kind": "measured again"}


def test_a_cost_includes_everything_that_a_run_does() -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    cost = Cost(
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
    assert cost.seconds(job.spec) == pytest.approx(2 + 20 - 1 + 10 * 0.1 + 10 * 0.2 + 3)
    assert cost.bytes_in_memory(job.spec) == 1_000 + 2_000 * 10
    logs = 11 * (train.steps // train.log_every)
    assert cost.bytes_on_disk(job.spec) == 2 * 500 + 20_000 + 4_000 + logs + 70 + 300
