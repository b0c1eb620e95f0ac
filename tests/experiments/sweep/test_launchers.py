"""Runs that a sweep skips, refuses and retries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch
from hadamard.experiments.sweep.status import run_state
from tests.support.sweep import STEPS, attempts, small_job, stream_contents


def test_finished_runs_are_skipped_and_runs_with_other_settings_refused(
    undisturbed: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.path.rglob("*")}
    assert launch([undisturbed], Options(jobs=1)).finished == (undisturbed,)
    assert {path: path.stat().st_mtime_ns for path in undisturbed.path.rglob("*")} == before
    assert capsys.readouterr().out == "1 run, 1 already finished\n"
    longer = Job("dqn", overridden(undisturbed.spec, {"train.steps": 2 * STEPS}))
    with pytest.raises(RuntimeError, match="train.steps: 2000 there, 4000 here"):
        launch([longer])
    with pytest.raises(ValueError, match="2 jobs would write to one run folder"):
        launch([undisturbed, undisturbed])


def test_runs_of_another_protocol_are_refused(tmp_path: Path) -> None:
    job = small_job(tmp_path, train__until=150)
    assert launch([job], Options(jobs=1)).exit_code == 0
    config = Run(job.path).config
    del config["protocol"]
    (job.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match="holds a run of protocol 1, and this version trains"):
        launch([job])


def test_a_failing_run_is_retried_and_does_not_stop_the_others(
    tmp_path: Path, undisturbed: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    # The learning rate is valid, but the loss soon becomes infinite.
    diverging = small_job(tmp_path, "diverging", algo__learning_rate=1e30, train__log_every=10)
    impossible = small_job(tmp_path, "impossible", env="probe/no-such-task")
    good = small_job(tmp_path, "good")
    summary = launch([diverging, impossible, good], Options(jobs=2))
    assert (summary.exit_code, summary.finished) == (1, (good,))
    outcomes = {outcome.job.name: outcome for outcome in summary.failed}
    assert outcomes["diverging"].attempts == attempts(diverging) == 3
    assert "dqn diverged" in outcomes["diverging"].log_tail
    # A run that cannot even start is not tried again.
    assert outcomes["impossible"].attempts == attempts(impossible) == 1
    assert "no-such-task" in outcomes["impossible"].log_tail
    assert run_state(diverging) == run_state(impossible) == "failed"
    assert json.loads(diverging.failure.read_text())["attempts"] == 3
    assert "diverging failed after 3 attempts" in str(summary)
    assert "dqn diverged" in str(summary)
    assert "1 finished, 2 failed; run the same command again to continue" in str(summary)
    assert "diverging: running (attempt 3)" in capsys.readouterr().out
    assert stream_contents(good.path) == stream_contents(undisturbed.path)
