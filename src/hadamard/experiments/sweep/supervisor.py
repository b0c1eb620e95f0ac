"""Start the process of a run or of a fleet, and start it again if it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

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
LESS_MEMORY = (
    "train fewer runs at once (--jobs, --fleet-size) or with a smaller --algo.replay-capacity"
)
"""What helps a run that needs more memory than there is."""
_ATTEMPT = "=== attempt "
"""The beginning of the line that separates attempts in a log."""
_TAIL_LINES, _TAIL_BYTES = 20, 20_000


class Supervisor:
    """Runs the process of some jobs, again and again until they finish or have failed too often.

    One job is a run on its own, several are a fleet, whose output is in the log of the first.
    ``plugins`` are the files that the runs need, as text: every attempt loads the same.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        environment: Mapping[str, str] | None = None,
        retries: int = RETRIES,
        plugins: str = "",
    ) -> None:
        self.jobs, self.retries, self.plugins = list(jobs), retries, plugins
        self.environment = {**os.environ, **(environment or {})}
        self.attempt = 0
        self.outcomes: dict[Path, Outcome] = {}
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()  # a signal handler may call `stop` while it is held

    def run(self) -> list[Outcome]:
        """Train the runs; returns when each has finished, failed or been stopped."""
        for job in self.jobs:
            try:
                _prepare(job)
            except Exception as error:  # such as a log that is a link
                self._end(job, "failed", f"{error}")
        try:
            self._run_attempts()
        except Exception as error:  # such as a full disk
            for job in self._remaining():
                self._end(job, "failed", f"{error}")
        return [self.outcomes[job.path] for job in self.jobs]

    def _remaining(self) -> list[Job]:
        return [job for job in self.jobs if job.path not in self.outcomes]

    def _end(
        self, job: Job, state: Literal["finished", "interrupted", "failed"], log_tail: str = ""
    ) -> None:
        self.outcomes[job.path] = Outcome(job, state, self.attempt, log_tail)

    def _run_attempts(self) -> None:
        self.attempt = 1
        while jobs := self._remaining():
            exit_code = self._run_process(jobs)
            for job in jobs:
                if job.finished:
                    self._end(job, "finished")
                elif is_file(job.failure):  # the worker has given it up
                    self._fail(job, PERMANENT, "")
                elif self._stopping:
                    self._end(job, "interrupted")
            if exit_code == INTERRUPTED:  # stopped by another process: no failure
                continue
            if exit_code == PERMANENT or self.attempt > self.retries:
                for job in self._remaining():
                    self._fail(job, exit_code, _output_of_others(job, jobs))
            elif self._remaining():
                self.attempt += 1

    def _fail(self, job: Job, exit_code: int | None, more: str) -> None:
        """Note beside the folder why a run has failed for good."""
        tail = "\n".join(filter(None, [log_tail(job), more, _signal_message(exit_code)]))
        note_failure(job, self.attempt, exit_code, tail)
        self._end(job, "failed", tail)

    def _run_process(self, jobs: Sequence[Job]) -> int | None:
        """Run the process of some jobs to its end, and return its exit code."""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        heading = f"{_ATTEMPT}{self.attempt} of {self.retries + 1}, {now}\n"
        first, *others = jobs
        for job in others:
            write_log(job, f"{heading}trained together with others, see {first.log}\n")
        with open_file(first.log, "ab") as log:
            log.write(heading.encode())
            log.flush()
            with self._lock:
                if self._stopping:
                    return INTERRUPTED
                self._process = process = subprocess.Popen(
                    command(jobs),
                    env=self.environment,
                    stdin=subprocess.PIPE if self.plugins else subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that Ctrl-C reaches the launcher alone
                )
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(self.plugins.encode())
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


def _prepare(job: Job) -> None:
    """Check a job's files, and remove the note of an earlier failure."""
    job.path.parent.mkdir(parents=True, exist_ok=True)
    require_folder(job.path)
    write_log(job, "")
    if is_file(job.failure):
        job.failure.unlink()
    elif os.path.lexists(job.failure):
        raise RunError(f"{job.failure} is not a regular file: remove it")


def write_log(job: Job, text: str) -> None:
    """Append to a job's log."""
    with open_file(job.log, "ab") as log:
        log.write(text.encode())


def note_failure(job: Job, attempts: int, exit_code: int | None, log: str) -> None:
    """Write the file that says why a run has failed for good."""
    failure = {"attempts": attempts, "exit_code": exit_code, "log": log}
    write_atomically(job.failure, json.dumps(failure, indent=2) + "\n")


def _output_of_others(job: Job, jobs: Sequence[Job]) -> str:
    """Return the last line of the process's output, if it is in another job's log."""
    return "" if job is jobs[0] else (log_tail(jobs[0]).splitlines() or [""])[-1]


def _signal_message(exit_code: int | None) -> str:
    """Return what is known of a process that a signal ended, which could not say so itself."""
    if exit_code is None or exit_code >= 0:
        return ""
    known = {number.value: number.name for number in signal.Signals}
    name = known.get(-exit_code, f"signal {-exit_code}")
    killed = -exit_code == signal.SIGKILL
    hint = f", as systems do when memory runs out: {LESS_MEMORY}" if killed else ""
    return f"the run's process was ended by {name}{hint}"


def command(jobs: Sequence[Job]) -> list[str]:
    """Return the command of the process that trains these jobs.

    It contains the run folders and this process's number, which tell workers whether the launcher
    of another worker has died.
    """
    pairs = [(str(job.path.resolve()), job_to_text(job)) for job in jobs]
    words = [word for pair in pairs for word in pair]
    return [sys.executable, "-m", WORKER, *words, str(os.getpid())]


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
