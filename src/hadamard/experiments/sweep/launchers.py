"""Check the jobs of a sweep and train them with the chosen launcher."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hadamard.core import differences, identity, plugin_records
from hadamard.core.config import flattened, to_dict
from hadamard.core.run import PROTOCOL, Run, RunError
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.outcome import Summary


def launch(jobs: Sequence[Job], options: Options | None = None) -> Summary:
    """Train all runs that are not finished, and show their progress."""
    options = options or Options()
    jobs = checked_jobs(jobs, options)
    if options.launcher == "ray":
        from hadamard.experiments.sweep.ray import launch_ray

        return launch_ray(jobs, options)
    if options.launcher == "slurm":
        from hadamard.experiments.sweep.slurm import launch_slurm

        return launch_slurm(jobs, options)
    from hadamard.experiments.sweep.queue import launch_local

    return launch_local(jobs, options)


def checked_jobs(jobs: Sequence[Job], options: Options) -> Sequence[Job]:
    """Return the jobs as the options have them; refuse what cannot be trained."""
    options.check()
    if not options.fleet:
        from hadamard.training import fleet

        jobs = [replace(job, spec=fleet.without(job.spec)) for job in jobs]
    check_jobs(jobs)
    return jobs


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse two jobs with one folder, and folders that hold a run with other settings.

    A run that cannot be read is not refused: it fails when it is started, and the others go on.
    """
    paths = Counter(job.path.resolve() for job in jobs)
    for path, count in paths.items():
        if count > 1:
            raise ValueError(f"{count} jobs would write to one run folder, {path}")
    for job in jobs:
        run = Run(job.path)
        try:
            config = run.config
        except (OSError, RunError):  # there is no run yet, or a damaged one, which fails by itself
            continue
        existing = _comparable(config.get("algorithm"), config.get("spec", {}))
        requested = _comparable(job.algorithm, json.loads(json.dumps(to_dict(job.spec))))
        # A setting that the run lacks is newer than the run, which has its default.
        known = {name: value for name, value in requested.items() if name in existing}
        changed = differences.listed(existing, known)
        changed += plugin_records.differences(config, job.algorithm, to_dict(job.spec))
        if changed:
            raise RunError(
                "\n".join([f"{job.path} holds a run with other settings:", *changed])
                + "\nChoose another folder, or remove the run."
            )
        if run.protocol != PROTOCOL:
            raise RunError(
                f"{job.path} holds a run of protocol {run.protocol}, and this version trains "
                f"under {PROTOCOL}: choose another folder, or remove the run"
            )


def _comparable(algorithm: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by their dotted names, without those that two starts may differ in."""
    settings = flattened(spec)
    return {
        "algorithm": algorithm,
        **{name: value for name, value in settings.items() if name not in identity.RESTART},
    }
