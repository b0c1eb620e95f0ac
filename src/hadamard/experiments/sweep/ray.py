"""The launcher of a Ray cluster, whose machines all share the run folders.

A task is a run, or a fleet of runs on one GPU. It trains them in a separate process, as the queue
of one machine does. If its worker or its machine dies, Ray starts the task elsewhere. There it
waits for a process that may have survived, and continues from the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hadamard.core import plugins
from hadamard.core.lock import holder
from hadamard.core.stopping import stop_signals
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import fleets
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.outcome import Outcome, Summary, summarize
from hadamard.experiments.sweep.queue import thread_variables
from hadamard.experiments.sweep.status import run_state
from hadamard.experiments.sweep.supervisor import Supervisor, log_tail
from hadamard.experiments.sweep.transfer import job_from_text, job_to_text, with_absolute_path
from hadamard.experiments.sweep.view import JobStatus, live_view
from hadamard.text import install

SAVING_SECONDS = 60.0
"""Seconds in which a stopped run must save."""


class ClusterError(ConnectionError):
    """A Ray cluster cannot be used; the message says what to do."""


def launch_ray(jobs: Sequence[Job], options: Options) -> Summary:
    """Train all runs that are not finished as tasks of a Ray cluster."""
    connect(options)
    import ray

    tasks = RayTasks([with_absolute_path(job) for job in jobs], options)
    try:
        return tasks.run()
    finally:
        ray.shutdown()


def connect(options: Options) -> None:
    """Join the cluster at the address, or start one on this machine.

    Raises:
        ClusterError: The cluster did not answer in time.
    """
    try:
        import ray
    except ImportError:
        raise ImportError(f"--launcher ray needs Ray: {install('sweep')}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = options.address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        ray.init(address="local", num_cpus=options.jobs, include_dashboard=False, **quiet)
        return
    _check_cluster(address, options.timeout)
    ray.init(address=address, **quiet)


def _check_cluster(address: str, timeout: float) -> None:
    """Refuse an address without a Ray cluster within the timeout; Ray itself tries for minutes."""
    advice = (
        "is the head node up (ray status), and can its port be reached from here? `ray start "
        "--head` prints the address; without --address a cluster is started on this machine"
    )
    start = time.monotonic()
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(
                f"--address must be host:port, ray://host:port or auto, got {address!r}"
            )
        try:
            socket.create_connection((host, int(port)), timeout).close()
        except OSError as error:
            raise ClusterError(f"no Ray cluster at {address} ({error}): {advice}") from None
    # Something listens there. Only a connection shows whether it is Ray, so a child process, which
    # can be killed, connects first.
    script = (
        f"import ray; ray.init(address={address!r}, log_to_driver=False, logging_level='error')"
    )
    left = max(timeout - (time.monotonic() - start), 1.0)
    try:
        trial = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=left,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"nothing at {address} answered as a Ray cluster within {timeout:g} s: {advice}"
        ) from None
    if trial.returncode != 0:
        reason = (trial.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ClusterError(f"no Ray cluster at {address} ({reason}): {advice}")


def train_in_task(
    job_texts: Sequence[str], environment: dict[str, str], retries: int, plugin_text: str
) -> list[tuple[str, int, str]]:
    """Train runs on the machine of this task; returns the fields of their outcomes."""
    # Ray cancels a task by SIGINT, which background processes of a shell ignore by default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs = list(map(job_from_text, job_texts))
    supervisor = Supervisor(jobs, environment, retries, plugin_text)
    try:
        outcomes = supervisor.run()
    except KeyboardInterrupt:  # the task is canceled
        supervisor.stop_and_wait(SAVING_SECONDS)
        return [("interrupted", supervisor.attempt, "")] * len(job_texts)
    return [(outcome.state, outcome.attempts, outcome.log_tail) for outcome in outcomes]


class RayTasks:
    """The runs of a sweep as tasks of the cluster that this process is connected to."""

    def __init__(self, jobs: Sequence[Job], options: Options) -> None:
        import ray

        self.jobs, self.options = list(jobs), options
        self.outcomes = {job.path: Outcome(job, "finished") for job in self.jobs if job.finished}
        gpus = self._gpus_per_task()
        self.waiting = deque(self._groups(gpus))
        """The runs of each task that is still to be submitted."""
        self.submitted: dict[Any, tuple[Job, ...]] = {}
        """By the reference that Ray gave for each task."""
        self.at_once = options.jobs or len(self.waiting)
        self.plugins = plugins.to_text()
        self._task = ray.remote(train_in_task).options(
            max_retries=max(options.retries, 1),
            num_cpus=options.threads,
            num_gpus=gpus,
        )

    def _groups(self, gpus_per_task: float) -> list[tuple[Job, ...]]:
        """Return the runs of each task: as many tasks as the cluster can train at a time."""
        import ray

        jobs = [job for job in self.jobs if job.path not in self.outcomes]
        resources = ray.cluster_resources()
        tasks = resources.get("CPU", 1) / self.options.threads
        if gpus_per_task:
            tasks = min(tasks, resources["GPU"] / gpus_per_task)
        slots = min(int(tasks), self.options.jobs or len(jobs))
        return fleets.groups(jobs, self.options, slots, gpus=gpus_per_task > 0)

    def _gpus_per_task(self) -> float:
        import ray

        may_use_gpu = any(job.spec.device != "cpu" for job in self.jobs)
        has_gpus = may_use_gpu and ray.cluster_resources().get("GPU")
        return 1 / self.options.per_gpu if has_gpus else 0.0

    def run(self) -> Summary:
        """Train all runs; SIGINT and SIGTERM make them save and end."""
        import ray

        with stop_signals() as stop_requested, live_view(self) as show:
            while (self.waiting or self.submitted) and not stop_requested():
                while self.waiting and len(self.submitted) < self.at_once:
                    self._submit(self.waiting.popleft())
                ready, _ = ray.wait(list(self.submitted), timeout=0.5)
                for reference in ready:
                    self._collect(reference)
                show()
            if self.submitted:
                print("stopping: waiting for the runs to save", file=sys.stderr, flush=True)
                self._stop()
            show()
        return summarize(self.jobs, self.outcomes)

    def _submit(self, jobs: tuple[Job, ...]) -> None:
        variables = thread_variables(self.options.threads)
        texts = [job_to_text(job) for job in jobs]
        reference = self._task.remote(texts, variables, self.options.retries, self.plugins)
        self.submitted[reference] = jobs

    def _collect(self, reference: Any) -> None:
        """Record the outcomes of a task that has ended."""
        import ray

        jobs = self.submitted.pop(reference)
        outcomes: list[tuple[Any, int, str]]
        try:
            outcomes = ray.get(reference)
        except ray.exceptions.TaskCancelledError:
            outcomes = [("interrupted", 0, "")] * len(jobs)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            tails = ["\n".join(filter(None, [log_tail(job), reason])) for job in jobs]
            outcomes = [("failed", 0, tail) for tail in tails]
        for job, (state, attempts, tail) in zip(jobs, outcomes, strict=True):
            if job.finished:
                state = "finished"
            self.outcomes[job.path] = Outcome(job, state, attempts, tail)

    def _stop(self) -> None:
        """Cancel all tasks, and wait until their runs have saved."""
        import ray

        for reference in reversed(self.submitted):
            with suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=False)
        deadline = time.monotonic() + SAVING_SECONDS
        paths = [job.path for jobs in self.submitted.values() for job in jobs]
        while self.submitted and time.monotonic() < deadline:
            ready, _ = ray.wait(list(self.submitted), timeout=0.5)
            for reference in ready:
                self._collect(reference)
        while time.monotonic() < deadline and any(map(_is_training, paths)):
            time.sleep(0.2)

    def status(self, job: Job) -> JobStatus:
        """Return the status of a job, read from its folder until Ray has reported its end."""
        if (outcome := self.outcomes.get(job.path)) is not None:
            return JobStatus(outcome.state, outcome.attempts)
        state = run_state(job)
        left_out = state == "failed" and holder(job.path) is not None
        return JobStatus("failed" if left_out else "running" if state == "running" else "waiting")


def _is_training(path: Path) -> bool:
    return holder(path) is not None
