"""The launcher of a Slurm cluster, through submitit: a job array.

Each of its jobs trains a run, or a fleet of runs on its GPU. A sweep submits them and returns.
Launched again, it prints the state of all runs and submits those that were interrupted. A job near
its time limit, or one that is preempted, saves its runs and is queued again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hadamard.core import plugins
from hadamard.core.files import RunError, make_folder, read_json, require_folder, write_atomically
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import fleets
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.outcome import Summary, failed_outcome
from hadamard.experiments.sweep.queue import thread_variables
from hadamard.experiments.sweep.status import run_state
from hadamard.experiments.sweep.supervisor import Supervisor
from hadamard.experiments.sweep.transfer import job_from_text, job_to_text, with_absolute_path
from hadamard.text import counted, install

SAVING_SECONDS = 120
"""Seconds before its time limit or preemption at which a job begins to save its run."""
UNFINISHED_STATES = (
    "PENDING", "RUNNING", "REQUEUED", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING",
)  # fmt: skip
"""States of a Slurm job that has not ended."""
MAX_TIMEOUTS = 1_000
"""How many times a job may reach its time limit and be queued again."""
MAX_BYTES = 64 * 2**20
"""Size of the record of submitted jobs at most."""
_JOB_ID = re.compile(r"\d+(_\d+)?")


class SlurmTask:
    """The function of a Slurm job; submitit pickles it."""

    plugins = ""  # also in tasks that an earlier version pickled

    def __init__(
        self,
        job_texts: Sequence[str],
        environment: dict[str, str],
        retries: int,
        plugins: str = "",
    ) -> None:
        self.job_texts, self.environment, self.retries = job_texts, environment, retries
        self.plugins = plugins
        self.supervisor: Supervisor | None = None

    def __call__(self) -> list[tuple[str, int, str]]:
        """Train the runs; returns the fields of their outcomes."""
        jobs = list(map(job_from_text, self.job_texts))
        self.supervisor = Supervisor(jobs, self.environment, self.retries, self.plugins)
        outcomes = self.supervisor.run()
        return [(outcome.state, outcome.attempts, outcome.log_tail) for outcome in outcomes]

    def checkpoint(self) -> Any:
        """Save, and return the next job's function; submitit calls this before the time limit."""
        from submitit.helpers import DelayedSubmission

        if self.supervisor is not None:
            self.supervisor.stop_and_wait(SAVING_SECONDS)
        return DelayedSubmission(
            SlurmTask(self.job_texts, self.environment, self.retries, self.plugins)
        )


def launch_slurm(jobs: Sequence[Job], options: Options) -> Summary:
    """Submit the runs that are not finished, failed or submitted already, and print all states."""
    jobs = [with_absolute_path(job) for job in jobs]
    submissions = Submissions(jobs[0].path.parent / ".slurm")
    finished, failed, new, queued = [], [], [], []
    for job in jobs:
        state, slurm_state = run_state(job), submissions.state(job)
        if state == "finished":
            finished.append(job)
        elif state == "running" or slurm_state in UNFINISHED_STATES:
            queued.append(job)
            print(f"{job.name}: {state if state == 'running' else (slurm_state or '').lower()}")
        elif state == "failed":
            failed.append(failed_outcome(job))
        else:
            new.append(job)
    if new:
        groups = fleets.groups(new, options, slots=1, gpus=options.slurm.gpus > 0)
        names = submissions.submit(make_executor(submissions.folder, options), groups, options)
        submitted = f"submitted {counted(len(new), 'run')} as {', '.join(names)}"
        print(f"{submitted}; run the same command again to see their states")
    return Summary(
        finished=tuple(finished),
        failed=tuple(failed),
        queued=(*queued, *new),
        advice="remove the .failed file of a run to submit it again",
    )


def make_executor(folder: Path, options: Options) -> Any:
    """Return submitit's executor with the resources of a run."""
    submitit = import_submitit()
    resources = options.slurm
    try:
        executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=MAX_TIMEOUTS)
    except RuntimeError:
        raise ValueError(
            "--launcher slurm: there is no Slurm here (srun is not found). Call it on a login "
            "node of the cluster, or use --launcher local or ray"
        ) from None
    memory = resources.memory_gb
    executor.update_parameters(
        job_name="hadamard",
        time=resources.minutes,
        partition=resources.partition,
        account=resources.account,
        cpus_per_task=resources.cpus,
        gpus_per_node=resources.gpus or None,
        mem=f"{memory * 1024:.0f}MB" if memory is not None else None,
        array_parallelism=options.jobs or 256,
        signal_delay_s=SAVING_SECONDS,
        stderr_to_stdout=True,
    )
    return executor


def import_submitit() -> Any:
    """Import submitit without its changes to this process's logging."""
    # Without this variable its import closes every logging handler.
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ImportError(f"--launcher slurm needs submitit: {install('sweep')}") from None
    return submitit


class Submissions:
    """The Slurm job of each run, recorded in a file beside submitit's own."""

    def __init__(self, folder: Path) -> None:
        require_folder(folder)
        self.folder = folder
        self.file = folder / "jobs.json"

    @property
    def job_ids(self) -> dict[str, str]:
        """Slurm's job number of every run folder."""
        try:
            ids: dict[str, str] = read_json(self.file, dict[str, str], MAX_BYTES)
        except FileNotFoundError:
            return {}
        if wrong := [job_id for job_id in ids.values() if not _JOB_ID.fullmatch(job_id)]:
            raise RunError(f"{self.file} is damaged: {wrong[0]!r} is no number of a Slurm job")
        return ids

    def state(self, job: Job) -> str | None:
        """Return the state of a run's Slurm job, None if it has none or is finished."""
        job_id = self.job_ids.get(str(job.path))
        if job_id is None or job.finished:
            return None
        return str(import_submitit().SlurmJob(folder=self.folder, job_id=job_id).state)

    def submit(self, executor: Any, groups: Sequence[Sequence[Job]], options: Options) -> list[str]:
        """Submit the runs of each job as one job array, and return Slurm's name of it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        make_folder(self.folder)
        variables = thread_variables(max(options.threads, options.slurm.cpus))
        texts = [[job_to_text(job) for job in jobs] for jobs in groups]
        files = plugins.to_text()
        tasks = [SlurmTask(text, variables, options.retries, files) for text in texts]
        try:
            submitted = executor.submit_array(tasks)
        except import_submitit().core.utils.FailedJobError as error:
            raise OSError(f"Slurm did not take the runs: {error}") from error
        pairs = zip(groups, submitted, strict=True)
        ids = {str(job.path): str(slurm_job.job_id) for jobs, slurm_job in pairs for job in jobs}
        write_atomically(self.file, json.dumps({**self.job_ids, **ids}, indent=2) + "\n")
        return sorted({name.partition("_")[0] for name in ids.values()})
