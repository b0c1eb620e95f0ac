"""Sweeps on a Slurm cluster, through submitit: the runs are a job array.

The sweep submits and returns; called again it shows what state all runs are in, and submits those
that ended without being finished or given up. A job that comes near its time limit, or is
preempted, has its run saved and is queued again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hadamard.core.run import write_atomically
from hadamard.experiments.grid import Job
from hadamard.experiments.ray_sweep import _absolute
from hadamard.experiments.single import Outcome, Supervisor, dumps, loads
from hadamard.experiments.sweep import Options, Summary, state, thread_variables

#: Seconds before the time limit, or the end of a preempted job, in which a run is saved.
SAVING = 120
#: States in which Slurm still has a job in hand.
ALIVE = ("PENDING", "RUNNING", "REQUEUED", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING")
#: Times a job may reach its time limit.
TIMEOUTS = 1_000


class Task:
    """What a Slurm job runs; pickled by submitit."""

    def __init__(self, text: str, environment: dict[str, str], retries: int) -> None:
        self.text, self.environment, self.retries = text, environment, retries
        self.supervisor: Supervisor | None = None

    def __call__(self) -> tuple[str, int, str]:
        """Make the run."""
        self.supervisor = Supervisor(loads(self.text), self.environment, self.retries)
        outcome = self.supervisor.run()
        return outcome.state, outcome.attempts, outcome.tail

    def checkpoint(self) -> Any:
        """Save, and say how to go on in the next job."""
        from submitit.helpers import DelayedSubmission

        if self.supervisor is not None:
            self.supervisor.finish(SAVING)
        return DelayedSubmission(Task(self.text, self.environment, self.retries))


def launch_slurm(jobs: Sequence[Job], options: Options) -> Summary:
    """Submit all runs that are neither finished nor in Slurm's hands, and tell of all."""
    jobs = [_absolute(job) for job in jobs]
    record = Record(jobs[0].path.parent / ".slurm")
    finished, failed, new, pending = [], [], [], []
    for job in jobs:
        told, slurm = state(job), record.status(job)
        if told == "finished":
            finished.append(job)
        elif slurm in ALIVE or told == "running":
            pending.append(job)
            print(f"{job.name}: {told if told == 'running' else (slurm or '').lower()}")
        elif told == "failed":
            failed.append(Outcome(job, "failed", *_failure(job)))
        else:
            new.append(job)
    if new:
        submitted = record.submit(make_executor(record.folder, options), new, options)
        print(f"submitted {len(new)} runs as {', '.join(submitted)}; call again to see them")
    return Summary(
        finished=tuple(finished),
        failed=tuple(failed),
        pending=(*pending, *new),
        remedy="a run is submitted again when its .failed file is removed",
    )


def _failure(job: Job) -> tuple[int, str]:
    told = json.loads(job.failure.read_text())
    return told["attempts"], told["log"]


def make_executor(folder: Path, options: Options) -> Any:
    """Return submitit's executor with the resources of a run."""
    submitit = _submitit()
    asked = options.slurm
    try:
        executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=TIMEOUTS)
    except RuntimeError:
        raise ValueError(
            "--launcher slurm: there is no Slurm here (srun is not found). Call it on a login "
            "node of the cluster, or use --launcher local or ray"
        ) from None
    executor.update_parameters(
        job_name="hadamard",
        time=asked.minutes,
        partition=asked.partition,
        account=asked.account,
        cpus_per_task=asked.cpus,
        gpus_per_node=asked.gpus or None,
        mem=f"{asked.memory_gb * 1024:.0f}MB" if asked.memory_gb is not None else None,
        array_parallelism=options.jobs or 256,
        signal_delay_s=SAVING,
        stderr_to_stdout=True,
    )
    return executor


def _submitit() -> Any:
    # Imported as it is, it configures logging anew and closes every handler there was.
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ImportError(
            "--launcher slurm needs submitit: pip install 'hadamard-rl[sweep]'"
        ) from None
    return submitit


class Record:
    """Which Slurm job has which run: a file beside submitit's own, in the runs' folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "jobs.json"

    @property
    def ids(self) -> dict[str, str]:
        """Slurm's job by run folder."""
        try:
            ids: dict[str, str] = json.loads(self.file.read_text())
        except FileNotFoundError:
            return {}
        return ids

    def status(self, job: Job) -> str | None:
        """Return what Slurm says of a run's job, None if it never had one."""
        found = self.ids.get(str(job.path))
        if found is None or job.finished:
            return None
        return str(_submitit().SlurmJob(folder=self.folder, job_id=found).state)

    def submit(self, executor: Any, jobs: Sequence[Job], options: Options) -> list[str]:
        """Submit runs as one array, and return Slurm's name of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        variables = thread_variables(max(options.threads, options.slurm.cpus))
        tasks = [Task(dumps(job), variables, options.retries) for job in jobs]
        try:
            made = executor.submit_array(tasks)
        except _submitit().core.utils.FailedJobError as error:
            raise OSError(f"Slurm did not take the runs: {error}") from error
        ids = {str(job.path): str(slurm.job_id) for job, slurm in zip(jobs, made, strict=True)}
        write_atomically(self.file, json.dumps({**self.ids, **ids}, indent=2) + "\n")
        return sorted({name.partition("_")[0] for name in ids.values()})
