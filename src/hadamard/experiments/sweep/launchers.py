"""Check the jobs of a sweep and train them with the chosen launcher."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hadamard.core.config import to_dict
from hadamard.core.run import PROTOCOL, Run, RunError, differences
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.outcome import Summary

_MAY_DIFFER = ("run_dir", "device", "train.until")
"""Settings in which two starts of the same run may differ."""


def launch(jobs: Sequence[Job], options: Options | None = None) -> Summary:
    """Train all runs that are not finished, and show their progress."""
    options = options or Options()
    options.check()
    check_jobs(jobs)
    if options.launcher == "ray":
        from hadamard.experiments.sweep.ray import launch_ray

        return launch_ray(jobs, options)
    if options.launcher == "slurm":
        from hadamard.experiments.sweep.slurm import launch_slurm

        return launch_slurm(jobs, options)
    from hadamard.experiments.sweep.queue import launch_local

    return launch_local(jobs, options)


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse two jobs with one folder, and folders that hold a run with other settings."""
    paths = Counter(job.path.resolve() for job in jobs)
    for path, count in paths.items():
        if count > 1:
            raise ValueError(f"{count} jobs would write to one run folder, {path}")
    for job in jobs:
        if not (job.path / "config.json").exists():
            continue
        run = Run(job.path)
        config = run.config
        existing = _comparable(config.get("algorithm"), config.get("spec", {}))
        requested = _comparable(job.algorithm, json.loads(json.dumps(to_dict(job.spec))))
        # A setting that the run lacks is newer than the run, which has its default.
        changed = differences(existing, _common(requested, existing))
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
    compared = {
        key: {name: inner for name, inner in value.items() if f"{key}.{name}" not in _MAY_DIFFER}
        if isinstance(value, Mapping)
        else value
        for key, value in spec.items()
        if key not in _MAY_DIFFER
    }
    return {"algorithm": algorithm, **compared}


def _common(requested: Mapping[str, Any], existing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested settings that the existing run has too."""
    return {
        key: _common(value, existing[key])
        if isinstance(value, Mapping) and isinstance(existing[key], Mapping)
        else value
        for key, value in requested.items()
        if key in existing
    }
