"""One run in a process of its own: what every launcher starts, watches and starts again.

The process trains, or goes on with what its folder holds. If another process trains there (its
launcher was killed, and it went on), it waits for that one and then takes over what is left. So
whoever starts a run twice gets it once.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from hadamard.core.config import RunSpec, from_dict, to_dict
from hadamard.core.run import InUse, Run, RunError, write_atomically
from hadamard.experiments.grid import Job

#: Exit codes: the run failed; it was refused before it began; it was stopped and saved.
FAILED, REFUSED, INTERRUPTED = 1, 2, 75
#: Times a failed run is tried again.
RETRIES = 2
_MODULE = "hadamard.experiments.single"
_TAIL = 20
_MARK = "=== attempt "


def holder(path: Path) -> int | None:
    """Return the process that trains in a folder (0 if it is not told), None if none does."""
    try:
        file = open(path / "lock", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = file.read().strip()
            return int(text) if text.isdigit() else 0
    return None


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    state: Literal["finished", "interrupted", "failed"]
    attempts: int = 0
    tail: str = ""
    """The end of a failed run's log."""


class Supervisor:
    """Runs a job's process, again if it fails, until the run is finished or given up."""

    def __init__(
        self, job: Job, environment: Mapping[str, str] | None = None, retries: int = RETRIES
    ) -> None:
        self.job, self.retries = job, retries
        self.environment = {**os.environ, **(environment or {})}
        self.attempt = 0
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.RLock()  # a signal's handler may come in between

    def run(self) -> Outcome:
        """Make the run; returns when its process has ended for good."""
        job = self.job
        job.path.parent.mkdir(parents=True, exist_ok=True)
        job.failure.unlink(missing_ok=True)
        self.attempt = 1
        while True:
            code = self._once()
            if job.finished:
                return Outcome(job, "finished", self.attempt)
            if self._stopping:
                return Outcome(job, "interrupted", self.attempt)
            if code == INTERRUPTED:  # somebody else stopped it: that is no failure, and it goes on
                continue
            if code == REFUSED or self.attempt > self.retries:
                break
            self.attempt += 1
        tail = log_tail(job)
        record = {"attempts": self.attempt, "exit_code": code, "log": tail}
        write_atomically(job.failure, json.dumps(record, indent=2) + "\n")
        return Outcome(job, "failed", self.attempt, tail)

    def _once(self) -> int | None:
        with open(self.job.log, "ab") as log:
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            log.write(f"{_MARK}{self.attempt} of {self.retries + 1}, {when}\n".encode())
            log.flush()
            with self._guard:
                if self._stopping:
                    return INTERRUPTED
                # A session of its own: Ctrl-C at the terminal reaches the launcher alone.
                self._process = process = subprocess.Popen(
                    command(self.job),
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        while process.poll() is None:
            time.sleep(0.1)
        return process.returncode

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask the run to save and end; `run` returns when it has. SIGKILL does not ask."""
        with self._guard:
            self._stopping = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

    def finish(self, timeout: float) -> None:
        """Stop, and wait until the run has saved."""
        self.stop()
        if self._process is not None:
            self._process.wait(timeout)


def log_tail(job: Job) -> str:
    """Return the last lines of a job's last attempt."""
    try:
        with open(job.log, "rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - 20_000, 0))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    last = text.rpartition(_MARK)[2].partition("\n")[2] if _MARK in text else text
    return "\n".join(last.strip().splitlines()[-_TAIL:])


def command(job: Job) -> list[str]:
    """Return the command of a job's process.

    It names the folder and the launcher (this process), for those who find it at work there.
    """
    return [sys.executable, "-m", _MODULE, str(job.path.resolve()), dumps(job), str(os.getpid())]


def dumps(job: Job) -> str:
    """Return a job as text, for another process."""
    return json.dumps({"algorithm": job.algorithm, "spec": to_dict(job.spec)})


def loads(text: str) -> Job:
    """Return the job that `dumps` wrote, the algorithm's own settings as plain values.

    Whoever only watches a run has no need of torch.
    """
    values = json.loads(text)
    spec: RunSpec[Any] = from_dict(RunSpec, {**values["spec"], "algo": None}, "spec")
    return Job(values["algorithm"], replace(spec, algo=values["spec"]["algo"]))


def _spec(job: Job) -> RunSpec[Any]:
    """Return a job's settings, with the algorithm's own as its module has them."""
    from hadamard.core import discover

    module = discover.find("hadamard.algos", job.algorithm, "algorithm")
    return replace(job.spec, algo=from_dict(module.Config, job.spec.algo, "spec.algo"))


class _Stopped(BaseException):
    """SIGTERM arrived while nothing was there to be saved."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    # Some libraries swallow whatever is raised while they are imported: it is said again, to
    # whoever then listens.
    signal.alarm(1)
    raise _Stopped


def _say_again(_number: int, _frame: FrameType | None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Make the run of a job, unless it is made; returns the exit code."""
    path, text = Path(arguments[0]), arguments[1]
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGALRM, _say_again)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # Slurm's warning is for the supervisor
    try:
        while True:
            _wait_for_others(path)
            try:
                return _train(path, text)
            except InUse:
                time.sleep(0.5)
    except _Stopped:
        signal.alarm(0)
        return INTERRUPTED


def _wait_for_others(path: Path) -> None:
    """Wait until no other process trains in a folder.

    A stop is handed on to that one if nobody else is left who could stop it.
    """
    told = False
    try:
        while (pid := holder(path)) is not None:
            if not told:
                print(f"waiting for process {pid}, which trains in {path}", flush=True)
                told = True
            time.sleep(0.5)
    except _Stopped:
        signal.alarm(0)
        pid = holder(path)
        if pid and _is_orphan(pid, path):
            os.kill(pid, signal.SIGTERM)
            while holder(path) == pid:
                time.sleep(0.1)
        raise


def _is_orphan(pid: int, path: Path) -> bool:
    """Whether a process of this machine is a run in a folder whose launcher is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # another machine's, or a system that does not tell
        return False
    # When a launcher dies, its runs become some other process's children.
    parent = status.rpartition(")")[2].split()[1]
    return _MODULE in words and str(path) in words and parent not in words


def _train(path: Path, text: str) -> int:
    job, begun = loads(text), (path / "config.json").exists()
    if begun and job.finished:
        return 0
    from hadamard import train
    from hadamard.core.checkpoint import CheckpointError
    from hadamard.envs.workers import EnvironmentFailure
    from hadamard.trainer import Diverged, Interrupted

    told = (RunError, CheckpointError, Diverged, EnvironmentFailure, OSError)
    try:
        if begun:
            # It may be beyond where it is to stop now: then it only has to be closed.
            until = job.spec.train.until
            summary = train.resume(str(path), until=until and max(until, train.reached(Run(path))))
        else:
            summary = train.train(job.algorithm, _spec(job))
    except Interrupted:
        print("stopped and saved", flush=True)
        return INTERRUPTED
    except InUse:
        raise
    except (ValueError, ImportError, *told) as error:
        if not begun and isinstance(error, RunError) and (path / "config.json").exists():
            raise InUse(str(error)) from None  # another process began it in between
        print(f"hadamard: {error}", flush=True)
        refused = isinstance(error, ValueError | ImportError | RunError)
        if refused and not (path / "config.json").exists():
            return REFUSED
        if not isinstance(error, told):
            traceback.print_exc()
        return FAILED
    print(f"done: {summary['steps']:,} steps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
