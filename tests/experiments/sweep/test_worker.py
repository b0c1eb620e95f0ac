"""The process of a run, which may be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch
from hadamard.experiments.sweep.status import run_state
from hadamard.experiments.sweep.supervisor import Supervisor, command
from hadamard.experiments.sweep.transfer import job_to_text
from tests.support.sweep import (
    LONG,
    STEPS,
    attempts,
    contents,
    current_step,
    held_process,
    newest_checkpoint,
    release,
    script,
    small_job,
    stream_contents,
    timing_rows,
    wait_until,
)


def test_a_later_end_continues_a_finished_run(tmp_path: Path, undisturbed: Job) -> None:
    early, later, full = (small_job(tmp_path, train__until=end) for end in (250, 450, 0))
    assert launch([early], Options(jobs=1)).finished == (early,)
    assert [run_state(job) for job in (early, later, full)] == [
        "finished", "interrupted", "interrupted"
    ]  # fmt: skip
    assert launch([later], Options(jobs=1)).finished == (later,)
    done = Run(later.path).done
    assert done is not None
    assert done["steps"] == 450
    assert run_state(early) == "finished"
    assert launch([full], Options(jobs=1)).finished == (full,)
    assert stream_contents(full.path) == stream_contents(undisturbed.path)


def test_a_run_past_its_new_end_is_closed_where_it_is(tmp_path: Path) -> None:
    job = small_job(tmp_path, train__steps=LONG)
    process = subprocess.Popen(command([job]), stdout=subprocess.DEVNULL)
    wait_until(lambda: current_step(job) > 300)
    process.terminate()
    assert process.wait(600) == INTERRUPTED
    reached = newest_checkpoint(job)
    early = small_job(tmp_path, train__steps=LONG, train__until=200)
    assert launch([early], Options(jobs=1)).finished == (early,)
    done = Run(early.path).done
    assert done is not None
    assert done["steps"] == reached > 300


def test_a_run_started_twice_is_trained_once(tmp_path: Path, undisturbed: Job) -> None:
    job = small_job(tmp_path)
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda _: Supervisor([job], retries=0).run(), range(2)))
    assert [outcome.state for (outcome,) in outcomes] == ["finished", "finished"]
    assert job.log.read_text().count("done: ") == 1
    assert stream_contents(job.path) == stream_contents(undisturbed.path)


def test_a_second_writer_is_refused_and_changes_nothing(tmp_path: Path, undisturbed: Job) -> None:
    job = small_job(tmp_path)
    script(job, 400, "hold")
    with subprocess.Popen(command([job]), stdout=subprocess.DEVNULL) as process:
        assert held_process(job) == process.pid
        before = contents(job.path)
        words = ["train", "--resume", str(job.path)]
        second = subprocess.run(
            [sys.executable, "-m", "hadamard", *words], capture_output=True, text=True
        )
        assert second.returncode == 2
        assert f"{job.path} is in use by process {process.pid}" in second.stderr
        assert contents(job.path) == before
        release(job)
    assert process.returncode == 0
    assert stream_contents(job.path) == stream_contents(undisturbed.path)


def test_a_killed_run_continues_from_its_checkpoint(tmp_path: Path, undisturbed: Job) -> None:
    job = small_job(tmp_path)
    script(job, 400, "hold")
    with ThreadPoolExecutor() as pool:
        summary = pool.submit(launch, [job], Options(jobs=1))
        pid = held_process(job)
        saved = newest_checkpoint(job)
        rows = timing_rows(job, saved)
        os.kill(pid, signal.SIGKILL)
        release(job)
    assert summary.result().finished == (job,)
    assert attempts(job) == 2
    assert 0 < saved < STEPS
    assert rows
    assert timing_rows(job, saved) == rows
    assert stream_contents(job.path) == stream_contents(undisturbed.path)


def test_a_run_stopped_by_another_process_continues(tmp_path: Path, undisturbed: Job) -> None:
    job = small_job(tmp_path)
    script(job, 400, "hold")
    with ThreadPoolExecutor() as pool:
        outcomes = pool.submit(Supervisor([job], retries=0).run)
        os.kill(held_process(job), signal.SIGTERM)
        wait_until(lambda: "stopped and saved" in job.log.read_text())
        release(job)
    (outcome,) = outcomes.result()
    assert (outcome.state, outcome.attempts) == ("finished", 1)
    assert "stopped and saved" in job.log.read_text()
    assert stream_contents(job.path) == stream_contents(undisturbed.path)


WORKER_WITH_A_SWALLOWING_IMPORT = """
import builtins, sys, time
from hadamard.experiments.sweep import worker

import_module = builtins.__import__

def swallow(name, *arguments, **options):
    builtins.__import__ = import_module
    try:
        print("importing", flush=True)
        time.sleep(3600)
    except BaseException as error:
        print("swallowed", repr(error), flush=True)
    return import_module(name, *arguments, **options)

builtins.__import__ = swallow
sys.exit(worker.main(sys.argv[1:]))
"""


def test_a_stop_that_an_import_swallows_is_sent_again(tmp_path: Path) -> None:
    job = small_job(tmp_path, train__steps=LONG)
    script = WORKER_WITH_A_SWALLOWING_IMPORT
    words = [sys.executable, "-c", script, str(job.path), job_to_text(job)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=600)
    assert "swallowed Stopped('SIGTERM')" in output
    assert process.returncode == INTERRUPTED
