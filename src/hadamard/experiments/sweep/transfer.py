"""Jobs as text, to pass them to another process or machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hadamard.core.config import RunSpec, from_dict, to_dict
from hadamard.experiments.grid import Job


def job_to_text(job: Job) -> str:
    """Return a job as one line of JSON."""
    return json.dumps({"algorithm": job.algorithm, "spec": to_dict(job.spec)})


def job_from_text(text: str) -> Job:
    """Return the job that `job_to_text` wrote.

    The algorithm's own settings stay plain values: checking them would import torch.
    """
    values = json.loads(text)
    spec: RunSpec[Any] = from_dict(RunSpec, {**values["spec"], "algo": None}, "spec")
    return Job(values["algorithm"], replace(spec, algo=values["spec"]["algo"]))


def with_absolute_path(job: Job) -> Job:
    """Return the job with an absolute run folder, which is valid on other machines too."""
    return replace(job, spec=replace(job.spec, run_dir=str(job.path.resolve())))
