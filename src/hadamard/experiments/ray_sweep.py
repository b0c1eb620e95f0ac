"""Sweeps on a Ray cluster: every run is a task, and the folders are on a file system all share.

A task makes its run in a process of its own, as the local queue does. If its worker or its whole
machine dies, Ray starts the task elsewhere; it waits for what may have survived, and goes on from
the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hadamard.core.stopping import stop_signals
from hadamard.experiments.grid import Job
from hadamard.experiments.single import Outcome, Supervisor, dumps, holder, loads, log_tail
from hadamard.experiments.sweep import (
    Options,
    Summary,
    live_view,
    state,
    summarise,
    thread_variables,
)

#: Seconds a stopped run may take to save.
SAVING = 60.0


class ClusterError(ConnectionError):
    """A Ray cluster cannot be used; the message says what to do."""


def launch_ray(jobs: Sequence[Job], options: Options) -> Summary:
    """Make all runs that are not finished as tasks of a Ray cluster."""
    connect(options)
    import ray

    board = Tasks([_absolute(job) for job in jobs], options)
    try:
        return board.run()
    finally:
        ray.shutdown()


def connect(options: Options) -> None:
    """Join the cluster at the address, or start one here; tell in time if it does not answer."""
    try:
        import ray
    except ImportError:
        raise ImportError("--launcher ray needs Ray: pip install 'hadamard-rl[sweep]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = options.address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        ray.init(address="local", num_cpus=options.jobs, include_dashboard=False, **quiet)
        return
    _answers(address, options.timeout)
    ray.init(address=address, **quiet)


def _answers(address: str, timeout: float) -> None:
    """Refuse an address that no Ray cluster answers at; Ray itself tries for many minutes."""
    remedy = (
        "is the head node up (ray status), and can its port be reached from here? `ray start "
        "--head` prints the address; without --address a cluster is started on this machine"
    )
    began = time.monotonic()
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"--address must be host:port, ray://host:port or auto: {address!r}")
        try:
            socket.create_connection((host, int(port)), timeout).close()
        except OSError as error:
            raise ClusterError(f"no Ray cluster at {address} ({error}): {remedy}") from None
    # Something listens. Whether it is Ray only a connection tells, and one that can be given up.
    script = (
        f"import ray; ray.init(address={address!r}, log_to_driver=False, logging_level='error')"
    )
    left = max(timeout - (time.monotonic() - began), 1.0)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=left,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"nothing at {address} answered as a Ray cluster within {timeout:g} s: {remedy}"
        ) from None
    if tried.returncode != 0:
        last = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ClusterError(f"no Ray cluster at {address} ({last}): {remedy}")


def _absolute(job: Job) -> Job:
    """Name the folder so that every machine finds it."""
    return replace(job, spec=replace(job.spec, run_dir=str(job.path.resolve())))


def run_task(text: str, environment: dict[str, str], retries: int) -> tuple[str, int, str]:
    """Make a job's run, on whichever machine this is."""
    # Ray cancels by SIGINT, which everything started in the background of a shell ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    supervisor = Supervisor(loads(text), environment, retries)
    try:
        outcome = supervisor.run()
    except KeyboardInterrupt:  # how Ray tells a task that it is cancelled
        supervisor.finish(SAVING)
        return "interrupted", supervisor.attempt, ""
    return outcome.state, outcome.attempts, outcome.tail


class Tasks:
    """The runs of a sweep as Ray tasks."""

    def __init__(self, jobs: Sequence[Job], options: Options) -> None:
        import ray

        self.jobs = list(jobs)
        self.outcomes: dict[Path, Outcome] = {}
        self.refs: dict[Any, Job] = {}
        room = {"num_cpus": options.threads, "num_gpus": self._gpus(options)}
        make = ray.remote(run_task).options(max_retries=max(options.retries, 1), **room)
        waiting = []
        for job in self.jobs:
            if job.finished:
                self.outcomes[job.path] = Outcome(job, "finished")
            else:
                waiting.append(job)
        variables = thread_variables(options.threads)
        self._submit = lambda job: make.remote(dumps(job), variables, options.retries)
        self.waiting = waiting
        self.at_once = options.jobs or len(waiting)

    def _gpus(self, options: Options) -> float:
        import ray

        wanted = any(job.spec.device != "cpu" for job in self.jobs)
        return 1 / options.per_gpu if wanted and ray.cluster_resources().get("GPU") else 0.0

    def run(self) -> Summary:
        """Make all runs; SIGINT and SIGTERM have them save and end."""
        import ray

        with stop_signals() as stopping, live_view(self) as show:
            while (self.waiting or self.refs) and not stopping():
                while self.waiting and len(self.refs) < self.at_once:
                    job = self.waiting.pop(0)
                    self.refs[self._submit(job)] = job
                ready, _ = ray.wait(list(self.refs), timeout=0.5)
                for ref in ready:
                    self._take(ref)
                show()
            if self.refs:
                print("stopping: the runs save", file=sys.stderr, flush=True)
                self._stop()
            show()
        return summarise(self.jobs, self.outcomes)

    def _take(self, ref: Any) -> None:
        import ray

        job = self.refs.pop(ref)
        try:
            word, attempts, tail = ray.get(ref)
        except ray.exceptions.TaskCancelledError:
            word, attempts, tail = "interrupted", 0, ""
        except ray.exceptions.RayError as error:
            word, attempts = "failed", 0
            tail = "\n".join(filter(None, [log_tail(job), str(error).strip().splitlines()[-1]]))
        if job.finished:
            word = "finished"
        self.outcomes[job.path] = Outcome(job, word, attempts, tail)

    def _stop(self) -> None:
        """Cancel all tasks, and wait until their runs have saved."""
        import ray

        for ref in reversed(self.refs):
            with suppress(ray.exceptions.RayError):
                ray.cancel(ref, force=False)
        deadline = time.monotonic() + SAVING
        jobs = list(self.refs.values())
        while self.refs and time.monotonic() < deadline:
            ready, _ = ray.wait(list(self.refs), timeout=0.5)
            for ref in ready:
                self._take(ref)
        while time.monotonic() < deadline and any(holder(job.path) is not None for job in jobs):
            time.sleep(0.2)

    def status(self, job: Job) -> tuple[str, int]:
        """Return a job's state: what Ray has not told, the folder does."""
        if (outcome := self.outcomes.get(job.path)) is not None:
            return outcome.state, outcome.attempts
        return ("running" if state(job) == "running" else "waiting"), 0
