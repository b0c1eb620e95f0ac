"""Start the process of a run, and start it again if it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from hadamard.core.files import RunError, is_file, open_file, require_folder, write_atomically
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.options import RETRIES
from hadamard.experiments.sweep.outcome import Outcome
from hadamard.experiments.sweep.transfer import job_to_text

WORKER = "hadamard.experiments.sweep.worker"
"""The module that a run's process executes."""
PERMANENT = 2
"""Exit code of a worker whose run failed for a reason that every further attempt would meet."""
LESS_MEMORY = "train fewer runs at once (--jobs) or with a smaller --algo.replay-capacity"
"""What helps a run that needs more memory than there is."""
_ATTEMPT = "=== attempt "
"""The beginning of the line that separates attempts in a log."""
_TAIL_LINES, _TAIL_BYTES = 20, 20_000


class Supervisor:
    """Runs the process of one run, again and again until it finishes or has failed too often."""

    def __init__(
        self, job: Job, environment: Mapping[str, str] | None = None, retries: int = RETRIES
    ) -> None:
        self.job, self.retries = job, retries
        self.environment = {**os.environ, **(environment or {})}
        self.attempt = 0
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()  # a signal handler may call `stop` while it is held

    def run(self) -> Outcome:
        """Train the run; returns when it has finished, failed or been stopped."""
        try:
            return self._run_attempts()
        except Exception as error:  # such as a full disk, or a log that is a link
            return Outcome(self.job, "failed", self.attempt, f"{error}")

    def _run_attempts(self) -> Outcome:
        job = self.job
        job.path.parent.mkdir(parents=True, exist_ok=True)
        require_folder(job.path)
        _remove_failure(job)
        self.attempt = 1
        while True:
            exit_code = self._run_process()
            if job.finished:
                return Outcome(job, "finished", self.attempt)
            if self._stopping:
                return Outcome(job, "interrupted", self.attempt)
            if exit_code == INTERRUPTED:  # stopped by another process: no failure
                continue
            if exit_code == PERMANENT or self.attempt > self.retries:
                break
            self.attempt += 1
        tail = "\n".join(filter(None, [log_tail(job), _signal_message(exit_code)]))
        failure = {"attempts": self.attempt, "exit_code": exit_code, "log": tail}
        write_atomically(job.failure, json.dumps(failure, indent=2) + "\n")
        return Outcome(job, "failed", self.attempt, tail)

    def _run_process(self) -> int | None:
        """Run the process to its end, and return its exit code."""
        with open_file(self.job.log, "ab") as log:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            log.write(f"{_ATTEMPT}{self.attempt} of {self.retries + 1}, {now}\n".encode())
            log.flush()
            with self._lock:
                if self._stopping:
                    return INTERRUPTED
                self._process = process = subprocess.Popen(
                    command(self.job),
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that Ctrl-C reaches the launcher alone
                )
        while process.poll() is None:
            time.sleep(0.1)
        return process.returncode

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Ask the run to save and end; `run` returns when it has. SIGKILL ends it unsaved."""
        with self._lock:
            self._stopping = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal_number)

    def stop_and_wait(self, timeout: float) -> None:
        """Stop the run, and wait until it has saved."""
        self.stop()
        if self._process is not None:
            self._process.wait(timeout)


def _remove_failure(job: Job) -> None:
    """Remove the note of an earlier failure."""
    if is_file(job.failure):
        job.failure.unlink()
    elif os.path.lexists(job.failure):
        raise RunError(f"{job.failure} is not a regular file: remove it")


def _signal_message(exit_code: int | None) -> str:
    """Return what is known of a process that a signal ended, which could not say so itself."""
    if exit_code is None or exit_code >= 0:
        return ""
    known = {number.value: number.name for number in signal.Signals}
    name = known.get(-exit_code, f"signal {-exit_code}")
    killed = -exit_code == signal.SIGKILL
    hint = f", as systems do when memory runs out: {LESS_MEMORY}" if killed else ""
    return f"the run's process was ended by {name}{hint}"


def command(job: Job) -> list[str]:
    """Return the command of a job's process.

    It contains the run folder and this process's number, which tell workers whether the launcher of
    another worker has died.
    """
    folder = str(job.path.resolve())
    return [sys.executable, "-m", WORKER, folder, job_to_text(job), str(os.getpid())]


def log_tail(job: Job) -> str:
    """Return the last lines of a job's last attempt."""
    try:
        with open_file(job.log) as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            text = log.read(_TAIL_BYTES).decode(errors="replace")
    except (OSError, RunError):
        return ""
    if _ATTEMPT in text:
        text = text.rpartition(_ATTEMPT)[2].partition("\n")[2]
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
