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
from tests.support.sweep import STEPS, attempts, release, script, small_job, stream_contents


def test_finished_runs_are_skipped_and_runs_with_other_settings_refused(
    undisturbed: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.path.rglob("*")}
    assert launch([undisturbed], Options(jobs=1)).finished == (undisturbed,)
    assert {path: path.stat().st_mtime_ns for path in undisturbed.path.rglob("*")} == before
    assert capsys.readouterr().out == "1 run, 1 already finished\n"
    longer = Job("dqn", overridden(undisturbed.spec, {"train.steps": 2 * STEPS}))
    with pytest.raises(RuntimeError, match="train.steps: 700 there, 1400 here"):
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


def test_a_run_that_every_attempt_would_fail_is_tried_once(
    tmp_path: Path, undisturbed: Job
) -> None:
    # The learning rate is valid, but the loss soon becomes infinite.
    diverging = small_job(tmp_path, "diverging", algo__learning_rate=1e30, train__log_every=10)
    impossible = small_job(tmp_path, "impossible", env="probe/no-such-task")
    good = small_job(tmp_path, "good")
    summary = launch([diverging, impossible, good], Options(jobs=2))
    assert (summary.exit_code, summary.finished) == (1, (good,))
    outcomes = {outcome.job.name: outcome for outcome in summary.failed}
    for job, reason in ((diverging, "dqn diverged"), (impossible, "no-such-task")):
        assert outcomes[job.name].attempts == attempts(job) == 1
        assert reason in outcomes[job.name].log_tail
        assert run_state(job) == "failed"
        assert reason in json.loads(job.failure.read_text())["log"]
    assert "diverging failed after 1 attempt; " in str(summary)
    assert "dqn diverged" in str(summary)
    assert "1 finished, 2 failed; run the same command again to continue" in str(summary)
    assert stream_contents(good.path) == stream_contents(undisturbed.path)


def test_runs_that_fail_again_and_again_do_not_stop_the_others(
    tmp_path: Path, undisturbed: Job
) -> None:
    """A lost drive, no memory (killed, or refused an allocation), a disk that takes no more."""
    reasons = {
        "fail": "hadamard: the network drive is gone",
        "kill": "ended by SIGKILL, as systems do when memory runs out: train fewer runs at once",
        "allocate": "hadamard: out of memory",
        "limit_files": "File too large",
    }
    failing = {action: small_job(tmp_path, action) for action in reasons}
    for action, job in failing.items():
        script(job, 300, action)
    jobs = [*failing.values(), small_job(tmp_path, "good")]
    summary = launch(jobs, Options(jobs=2, retries=1))
    assert [job.name for job in summary.finished] == ["good"]
    for outcome in summary.failed:
        assert outcome.attempts == attempts(outcome.job) == 2
        assert reasons[outcome.job.name] in outcome.log_tail
        assert reasons[outcome.job.name] in str(summary)
    # Without the causes, the same sweep continues the runs, and nothing is lost.
    for job in failing.values():
        release(job)
    assert launch(jobs, Options(jobs=2)).exit_code == 0
    for job in jobs:
        assert not job.failure.exists()
        assert stream_contents(job.path) == stream_contents(undisturbed.path)
