"""Sweeps that are interrupted, killed or launched twice, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.sweep.status import run_state, training_process
from tests.support.sweep import (
    STEPS,
    current_step,
    is_alive,
    jobs_in,
    newest_checkpoint,
    sweep_words,
    timing_rows,
    wait_until,
)


def test_ctrl_c_saves_all_and_the_same_command_continues(
    tmp_path: Path, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    first, second = jobs_in(tmp_path)
    sweep = start_sweep(*sweep_words(tmp_path, "--jobs", "1"))
    wait_until(lambda: current_step(first) >= 200)
    sweep.send_signal(signal.SIGINT)
    output, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == INTERRUPTED, output
    assert "1 stopped and saved, 1 not started; run the same command again to continue" in output
    assert (run_state(first), run_state(second)) == ("interrupted", "absent")
    # Nothing is lost: the checkpoint is of the last step.
    stopped = newest_checkpoint(first)
    assert stopped >= current_step(first) >= 200
    rows = timing_rows(first, stopped)
    continued = start_sweep(*sweep_words(tmp_path, "--jobs", "1"))
    wait_until(lambda: current_step(first) > stopped)
    continued.terminate()
    assert continued.wait(120) == INTERRUPTED
    assert timing_rows(first, stopped) == rows


def test_a_killed_sweep_loses_nothing(
    tmp_path: Path, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    jobs = jobs_in(tmp_path)
    words = sweep_words(tmp_path, "--jobs", "2")
    sweep = start_sweep(*words)
    wait_until(lambda: all(current_step(job) >= 100 for job in jobs))
    sweep.kill()
    sweep.wait()
    orphans = [training_process(job.path) for job in jobs]
    reached = [current_step(job) for job in jobs]
    assert all(orphans)
    # The runs go on, and the next sweep waits for their processes.
    second = start_sweep(*words)
    wait_until(lambda: all("waiting for process" in job.log.read_text() for job in jobs))
    wait_until(
        lambda: all(current_step(job) > step for job, step in zip(jobs, reached, strict=True))
    )
    assert [training_process(job.path) for job in jobs] == orphans
    # One of them is killed: the sweep takes over.
    os.kill(orphans[0] or 0, signal.SIGKILL)
    wait_until(lambda: training_process(jobs[0].path) not in (None, 0, orphans[0]))
    # A stop of the second sweep also stops the processes that the first one started.
    second.send_signal(signal.SIGINT)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == INTERRUPTED, output
    assert [run_state(job) for job in jobs] == ["interrupted"] * 2
    assert not any(is_alive(pid) for pid in orphans if pid)
    for job in jobs:
        steps = [row["step"] for row in Run(job.path).rows("train")]
        assert steps == list(range(50, 50 * len(steps) + 1, 50))


def test_stopping_one_sweep_leaves_the_runs_of_another_alone(
    tmp_path: Path, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    jobs = jobs_in(tmp_path)
    words = sweep_words(tmp_path, "--jobs", "2", steps=STEPS)
    first = start_sweep(*words)
    held: dict[str, int] = {}

    def all_held() -> bool:
        """Hold the runs as they begin: none ends before the second sweep waits for it."""
        for job in jobs:
            begun = (job.path / "config.json").exists()
            if begun and job.name not in held and (pid := training_process(job.path)):
                os.kill(pid, signal.SIGSTOP)
                held[job.name] = pid
        return len(held) == len(jobs)

    wait_until(all_held)
    second = start_sweep(*words)
    wait_until(lambda: all("waiting for process" in job.log.read_text() for job in jobs))
    second.terminate()
    output, _ = second.communicate(timeout=120)
    assert second.returncode == INTERRUPTED, output
    assert {job.name: training_process(job.path) for job in jobs} == held
    for pid in held.values():
        os.kill(pid, signal.SIGCONT)
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 0, output
    assert output.endswith("2 finished\n")
    assert [run_state(job) for job in jobs] == ["finished"] * 2
    for job in jobs:
        assert "stopped and saved" not in job.log.read_text()
