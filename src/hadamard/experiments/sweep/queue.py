"""The launcher of this machine: it decides when and on which device each run starts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from hadamard.core import plugins
from hadamard.core.cores import usable_cores
from hadamard.core.files import is_file
from hadamard.core.stopping import stop_signals
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import fleets
from hadamard.experiments.sweep.options import RETRIES, Options
from hadamard.experiments.sweep.outcome import Outcome, Summary, summarize
from hadamard.experiments.sweep.supervisor import Supervisor
from hadamard.experiments.sweep.view import JobStatus, View, live_view


def launch_local(jobs: Sequence[Job], options: Options) -> Summary:
    """Train all runs that are not finished in processes of this machine."""
    return Queue(jobs, slots(jobs, options), options.retries, options=options).run(live_view)


def slots(jobs: Sequence[Job], options: Options) -> list[dict[str, str]]:
    """Return the environment variables of each slot; one process trains in a slot at a time.

    There are no more slots than jobs.
    """
    threads = thread_variables(options.threads)
    cores = max(usable_cores() // options.threads, 1)
    devices = {job.spec.device for job in jobs}
    if devices <= {"cpu"}:
        count = min(options.jobs or cores, len(jobs))
        return [{**threads, "CUDA_VISIBLE_DEVICES": ""}] * count
    gpus = visible_gpus()
    if not gpus or any(":" in device for device in devices):  # the jobs name their GPUs
        return [threads] * min(options.jobs or cores, len(jobs))
    count = min(options.jobs or len(gpus) * options.per_gpu, len(jobs))
    return [{**threads, "CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} for i in range(count)]


def groups(jobs: Sequence[Job], options: Options, count: int) -> list[tuple[Job, ...]]:
    """Return the jobs of each process, with so many processes at a time on this machine."""
    gpus = any(job.spec.device != "cpu" for job in jobs) and bool(visible_gpus())
    return fleets.groups(jobs, options, count, gpus=gpus)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit the threads of a process."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return names[:count] if names else [str(i) for i in range(count)]


class Queue:
    """Trains runs on this machine, one process in each slot at a time.

    A process trains one run, or a fleet of runs (see `fleets`). If this process is killed, the
    runs go on, and the next queue waits for them instead of starting them again.

    Args:
        jobs: The runs, in the order in which they start. Finished ones are skipped.
        slots: The environment variables of each slot; there are as many processes as slots.
        retries: How often a failed run is started again.
        options: Whether there are fleets, and how large they are.
        stop_at_failure: Whether the first run that fails for good stops all others.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        slots: Sequence[Mapping[str, str]],
        retries: int = RETRIES,
        *,
        options: Options | None = None,
        stop_at_failure: bool = False,
    ) -> None:
        self.jobs, self.slots, self.retries = list(jobs), list(slots), retries
        self.stop_at_failure = stop_at_failure
        self.plugins = plugins.to_text()
        self.outcomes: dict[Path, Outcome] = {}
        self.running: dict[Path, Supervisor] = {}
        self._lock = threading.Lock()
        self._stopping = False
        for job in self.jobs:
            if job.finished:
                self.outcomes[job.path] = Outcome(job, "finished")
        unfinished = [job for job in self.jobs if job.path not in self.outcomes]
        self.waiting = deque(groups(unfinished, options or Options(), len(self.slots)))
        """The runs of each process that is still to be started."""

    def run(self, view: View) -> Summary:
        """Train all runs.

        SIGINT and SIGTERM make the runs save and end; a second SIGINT kills them.
        """
        threads = [
            threading.Thread(target=self._fill_slot, args=(variables,), daemon=True)
            for variables in self.slots
        ]
        with stop_signals() as stop_requested, view(self) as show:
            try:
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):
                    if stop_requested() and not self._stopping:
                        self.stop()
                        print("stopping: waiting for the runs to save", file=sys.stderr, flush=True)
                    show()
                    time.sleep(0.2)
                show()
            except BaseException:
                self.stop(signal.SIGKILL)
                for thread in threads:
                    thread.join()
                raise
        return summarize(self.jobs, self.outcomes)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Start no more runs, and ask the running ones to save and end."""
        with self._lock:
            self._stopping = True
            running = set(self.running.values())
        for supervisor in running:
            supervisor.stop(signal_number)

    def status(self, job: Job) -> JobStatus:
        """Return a job's state and the number of its attempt."""
        with self._lock:
            if (outcome := self.outcomes.get(job.path)) is not None:
                return JobStatus(outcome.state, outcome.attempts)
            if (supervisor := self.running.get(job.path)) is not None:
                # A run that diverged leaves its fleet, which goes on. Before the first attempt
                # the note may be of an earlier sweep.
                failed = supervisor.attempt > 0 and is_file(job.failure)
                return JobStatus("failed" if failed else "running", supervisor.attempt)
        return JobStatus("waiting")

    def _fill_slot(self, variables: Mapping[str, str]) -> None:
        """Start one waiting process after another."""
        while True:
            with self._lock:
                if self._stopping or not self.waiting:
                    return
                jobs = self.waiting.popleft()
                supervisor = Supervisor(jobs, variables, self.retries, self.plugins)
                self.running |= {job.path: supervisor for job in jobs}
            outcomes = supervisor.run()
            with self._lock:
                for outcome in outcomes:
                    self.outcomes[outcome.job.path] = outcome
                    del self.running[outcome.job.path]
            if self.stop_at_failure and any(outcome.state == "failed" for outcome in outcomes):
                self.stop()
