"""Sweeps that are interrupted, killed or launched twice, each in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from hadamard.core.lock import holder
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.status import run_state
from tests.support.sweep import (
    STEPS,
    attempts,
    current_step,
    held_process,
    is_alive,
    jobs_in,
    newest_checkpoint,
    release,
    script,
    stream_contents,
    sweep_words,
    timing_rows,
    wait_until,
)

StartSweep = Callable[..., "subprocess.Popen[str]"]


def output_of(sweep: subprocess.Popen[str]) -> str:
    """Wait for the end of a sweep, and return its output."""
    return sweep.communicate(timeout=600)[0]


def test_ctrl_c_saves_all_and_the_same_command_continues(
    tmp_path: Path, undisturbed: Job, start_sweep: StartSweep
) -> None:
    first, second = jobs_in(tmp_path)
    script(first, 300, "hold")
    words = sweep_words(tmp_path, "--jobs", "1", steps=STEPS)
    sweep = start_sweep(*words)
    held_process(first)
    sweep.send_signal(signal.SIGINT)
    output = output_of(sweep)
    assert sweep.returncode == INTERRUPTED, output
    assert "1 stopped and saved, 1 not started; run the same command again to continue" in output
    assert (run_state(first), run_state(second)) == ("interrupted", "absent")
    # Nothing is lost: the checkpoint is of the last step.
    stopped = newest_checkpoint(first)
    assert stopped >= current_step(first)
    assert stopped >= 300
    rows = timing_rows(first, stopped)
    release(first)
    assert output_of(start_sweep(*words)).endswith("2 finished\n")
    assert timing_rows(first, stopped) == rows
    assert stream_contents(first.path) == stream_contents(undisturbed.path)


def test_after_a_killed_sweep_nothing_is_lost_and_nothing_run_twice(
    tmp_path: Path, undisturbed: Job, start_sweep: StartSweep
) -> None:
    first, second = jobs = jobs_in(tmp_path)
    for job in jobs:
        script(job, 300, "hold")
    words = sweep_words(tmp_path, "--jobs", "2", steps=STEPS)
    sweep = start_sweep(*words)
    orphans = [held_process(job) for job in jobs]
    sweep.kill()
    sweep.wait()
    # The runs go on, and the next sweep waits for their processes.
    again = start_sweep(*words)
    wait_until(lambda: all("waiting for process" in job.log.read_text() for job in jobs))
    assert [holder(job.path) for job in jobs] == orphans
    # One of them is killed: the sweep takes over.
    saved = newest_checkpoint(second)
    rows = [timing_rows(first, 300), timing_rows(second, saved)]
    os.kill(orphans[1], signal.SIGKILL)
    for job in jobs:
        release(job)
    output = output_of(again)
    assert again.returncode == 0, output
    assert output.endswith("2 finished\n")
    assert [timing_rows(first, 300), timing_rows(second, saved)] == rows
    # The first sweep's process trained the first run to its end: the second sweep's found it done.
    assert [job.log.read_text().count("done: ") for job in jobs] == [1, 1]
    assert [attempts(job) for job in jobs] == [2, 2]
    assert stream_contents(first.path) == stream_contents(undisturbed.path)
    wait_until(lambda: not any(map(is_alive, orphans)))


def test_a_stop_reaches_the_processes_of_a_killed_sweep(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    jobs = jobs_in(tmp_path)
    for job in jobs:
        script(job, 300, "hold")
    words = sweep_words(tmp_path, "--jobs", "2", steps=STEPS)
    sweep = start_sweep(*words)
    orphans = [held_process(job) for job in jobs]
    sweep.kill()
    sweep.wait()
    again = start_sweep(*words)
    wait_until(lambda: all("waiting for process" in job.log.read_text() for job in jobs))
    again.send_signal(signal.SIGINT)
    output = output_of(again)
    assert again.returncode == INTERRUPTED, output
    assert [run_state(job) for job in jobs] == ["interrupted"] * 2
    assert all(newest_checkpoint(job) >= 300 for job in jobs)
    wait_until(lambda: not any(map(is_alive, orphans)))


def test_stopping_one_sweep_leaves_the_runs_of_another_alone(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    jobs = jobs_in(tmp_path)
    for job in jobs:
        script(job, 0, "hold")
    words = sweep_words(tmp_path, "--jobs", "2", steps=STEPS)
    first = start_sweep(*words)
    processes = [held_process(job) for job in jobs]
    second = start_sweep(*words)
    wait_until(lambda: all("waiting for process" in job.log.read_text() for job in jobs))
    second.terminate()
    output = output_of(second)
    assert second.returncode == INTERRUPTED, output
    assert [holder(job.path) for job in jobs] == processes
    for job in jobs:
        release(job)
    output = output_of(first)
    assert first.returncode == 0, output
    assert output.endswith("2 finished\n")
    assert [run_state(job) for job in jobs] == ["finished"] * 2
    for job in jobs:
        assert "stopped and saved" not in job.log.read_text()
