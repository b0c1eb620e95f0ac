"""The process of one run, which every launcher starts and restarts.

It trains a new run or continues the one in the folder. If another process already trains there
(its launcher was killed), it waits for that process and trains the remaining steps. A run that is
started twice is therefore trained once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hadamard.core.config import RunSpec, from_dict
from hadamard.core.files import require_folder
from hadamard.core.run import InUse, Run, RunError
from hadamard.core.stopping import INTERRUPTED, Stopped, ignore_signals, stop_at_once
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.status import training_process
from hadamard.experiments.sweep.supervisor import LESS_MEMORY, PERMANENT, WORKER
from hadamard.experiments.sweep.transfer import job_from_text

FAILED = 1
"""Exit code of a run that failed and may succeed at the next attempt."""


def main(arguments: Sequence[str]) -> int:
    """Train the run of a job unless it is finished; returns the exit code."""
    path, job_text = Path(arguments[0]), arguments[1]
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # Slurm's warning, which the supervisor handles
    with stop_at_once():
        try:
            return _train_alone(path, job_text)
        except Stopped:
            ignore_signals()
            return INTERRUPTED


def _train_alone(path: Path, job_text: str) -> int:
    """Train the run once no other process trains in its folder, and return the exit code."""
    while True:
        _wait_for_others(path)
        try:
            return _train(path, job_text)
        except InUse:
            time.sleep(0.5)


def _wait_for_others(path: Path) -> None:
    """Wait until no other process trains in the run folder.

    If this process is stopped while it waits, it also stops the other process if that one's
    launcher has died, since no launcher would.
    """
    announced = False
    try:
        while (pid := training_process(path)) is not None:
            if not announced:
                print(f"waiting for process {pid}, which trains in {path}", flush=True)
                announced = True
            time.sleep(0.5)
    except Stopped:
        pid = training_process(path)
        if pid and _is_orphan(pid, path):
            os.kill(pid, signal.SIGTERM)
            while training_process(path) == pid:
                time.sleep(0.1)
        raise


def _is_orphan(pid: int, path: Path) -> bool:
    """Tell whether a process is a worker of this machine whose launcher is gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # a process of another machine, or a system without /proc
        return False
    # When a launcher dies, another process becomes the parent of its runs.
    parent = status.rpartition(")")[2].split()[1]
    return WORKER in command and str(path) in command and parent not in command


def _train(path: Path, job_text: str) -> int:
    """Train the run or continue it, and return the exit code."""
    job, started = job_from_text(job_text), _has_config(path)
    if started and job.finished:
        return 0
    from hadamard.core.checkpoint import CheckpointError
    from hadamard.envs.common import EnvironmentFailure
    from hadamard.training import start
    from hadamard.training.memory import OutOfMemory
    from hadamard.training.trainer import Diverged, Interrupted

    # Another attempt would end the same way. Settings are wrong only before the run has started.
    permanent: tuple[type[Exception], ...] = (RunError, CheckpointError, Diverged)
    permanent += () if started else (ValueError, ImportError)
    try:
        require_folder(path)
        if started:
            # A run that is already past its new end is closed at its present step.
            until = job.spec.train.until
            summary = start.resume(
                str(path), until=until and max(until, start.trained_steps(Run(path)))
            )
        else:
            summary = start.train(job.algorithm, _with_algorithm_settings(job))
    except Interrupted:
        print("stopped and saved", flush=True)
        return INTERRUPTED
    except InUse:
        raise
    except permanent as error:
        if not started and isinstance(error, RunError) and _has_config(path):
            raise InUse(str(error)) from None  # another process started the run in the meantime
        print(f"hadamard: {error}", flush=True)
        return PERMANENT
    except (EnvironmentFailure, OSError) as error:
        print(f"hadamard: {error}", flush=True)
        return FAILED
    except OutOfMemory as error:
        print(f"hadamard: {error}. In a sweep: {LESS_MEMORY}", flush=True)
        return FAILED
    except Exception:
        traceback.print_exc()
        return FAILED
    print(f"done: {summary['steps']:,} steps", flush=True)
    return 0


def _has_config(path: Path) -> bool:
    return os.path.lexists(path / "config.json")


def _with_algorithm_settings(job: Job) -> RunSpec[Any]:
    """Return a job's settings, the algorithm's own as an instance of its Config."""
    from hadamard.core import discover

    module = discover.find("hadamard.algos", job.algorithm, "algorithm")
    return replace(job.spec, algo=from_dict(module.Config, job.spec.algo, "spec.algo"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
