"""Sweeps in folders that a stranger has prepared."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hadamard.core.files import RunError
from hadamard.core.lock import holder
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch
from hadamard.experiments.sweep.outcome import Outcome, Summary
from hadamard.experiments.sweep.slurm import Submissions, launch_slurm
from hadamard.experiments.sweep.status import run_state
from tests.support.sweep import contents, small_job, stream_contents


def replace_by_link(path: Path, victim: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(victim / path.name)


def replace_by_pipe(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_list(path: Path, _: Path) -> None:
    path.write_text("[]")


Damage = Callable[[Path, Path], None]
RUNS: dict[str, tuple[str, Damage, str]] = {
    "linked-run": ("linked-run", replace_by_link, "linked-run is a link"),
    "linked-log": ("linked-log.log", replace_by_link, "linked-log.log is a link"),
    "linked-note": ("linked-note.failed", replace_by_link, "linked-note.failed is not a regular"),
    "linked-lock": ("linked-lock/lock", replace_by_link, "lock is a link"),
    "linked-stream": ("linked-stream/train.jsonl", replace_by_link, "train.jsonl is a link"),
    "linked-saves": ("linked-saves/checkpoints", replace_by_link, "checkpoints is a link"),
    "pipe": ("pipe/config.json", replace_by_pipe, "config.json is not a regular file"),
    "list": ("list/config.json", replace_by_list, "must be an object, got []"),
}
"""By a run's name: what is damaged, how, and what is said of it."""


def test_hostile_runs_fail_with_a_reason_and_the_others_go_on(
    tmp_path: Path, undisturbed: Job
) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "runs"
    started = small_job(tmp_path, "started", train__until=150)
    assert launch([started], Options(jobs=1)).exit_code == 0
    shutil.copytree(started.path, victim / "linked-run")
    shutil.copytree(started.path / "checkpoints", victim / "checkpoints")
    for name in ("linked-log.log", "linked-note.failed", "lock", "train.jsonl"):
        (victim / name).write_text("precious\n")
    jobs = [small_job(folder, name) for name in (*RUNS, "good")]
    for job in jobs:
        shutil.copytree(started.path, job.path)
    for path, damage, _ in RUNS.values():
        damage(folder / path, victim)
    before = contents(victim)
    summary = launch(jobs, Options(jobs=2, retries=2))
    assert contents(victim) == before
    assert [job.name for job in summary.finished] == ["good"]
    assert stream_contents(folder / "good") == stream_contents(undisturbed.path)
    outcomes = {outcome.job.name: outcome for outcome in summary.failed}
    assert set(outcomes) == set(RUNS)
    for name, (_, _, reason) in RUNS.items():
        assert reason in outcomes[name].log_tail, name
        assert outcomes[name].attempts <= 1
        assert "Traceback" not in outcomes[name].log_tail
        assert reason in str(summary)


def test_the_state_of_a_hostile_run_is_read_without_waiting(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    job.path.mkdir()
    for name in ("lock", "DONE", "config.json", "train.jsonl"):
        os.mkfifo(job.path / name)
    assert holder(job.path) is None
    assert run_state(job) == "damaged"
    assert not job.finished


def test_a_log_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    failed = Outcome(job, "failed", 1, "first\n\x1b]0;title\x07\x1b[2Jsecond\r")
    text = str(Summary(failed=(failed,)))
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "second" in text


def test_hostile_files_of_slurm_are_refused_or_reported(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "runs"
    victim.mkdir()
    job = small_job(folder)
    folder.mkdir()
    (folder / ".slurm").symlink_to(victim)
    with pytest.raises(RunError, match=r"\.slurm is a link"):
        launch_slurm([job], Options(launcher="slurm"))
    assert not list(victim.iterdir())
    (folder / ".slurm").unlink()
    (folder / ".slurm").mkdir()
    record = folder / ".slurm" / "jobs.json"
    for text, reason in (
        ("[]", "must be an object"),
        (json.dumps({str(job.path): "../../pickle"}), "is no number of a Slurm job"),
        (json.dumps({str(job.path): 7}), "must be a text, got 7"),
    ):
        record.write_text(text)
        with pytest.raises(RunError, match=reason):
            Submissions(folder / ".slurm").state(job)
    record.unlink()
    job.failure.write_text('{"attempts": "many"}')
    (outcome,) = launch_slurm([job], Options(launcher="slurm")).failed
    assert "attempts must be a whole number, got 'many'" in outcome.log_tail
