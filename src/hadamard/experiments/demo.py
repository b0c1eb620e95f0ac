"""The demo trains tanh and tanh + HR on this machine and writes a page that compares them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from hadamard import envs
from hadamard.core import require
from hadamard.core.config import overridden, to_dict
from hadamard.core.run import RunError
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.launchers import check_jobs
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.queue import Queue, slots
from hadamard.experiments.sweep.view import live_view
from hadamard.report.data.runs import load
from hadamard.report.data.sections import sections
from hadamard.report.pages.comparison import write_comparison
from hadamard.report.pages.findings import findings
from hadamard.training.start import default_spec

LAYERS = {"tanh": "plain", "tanh + HR": "hadamard"}
"""The layer of each variant."""


def demo(
    output: Path, algorithm: str, env: str, steps: int, seeds: int, parallel: int
) -> Path | None:
    """Train all runs and write the page.

    Returns:
        The path of the page, or None if the runs were asked to stop and have saved.
    """
    for name, value in (("steps", steps), ("jobs", parallel)):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    require.seeds(seeds)
    envs.make(env, 0, 1).close()  # a wrong name is reported once, not by every run
    jobs = demo_jobs(output, algorithm, env, steps, seeds)
    if not _train(jobs, parallel):
        return None
    page = output / "index.html"
    runs = load([job.path for job in jobs.values()])
    write_comparison(
        page,
        runs,
        f"tanh with and without HR: {algorithm.upper()} on {env}",
        lambda algorithm, env: to_dict(default_spec(algorithm, env)),
    )
    for section in sections(runs):
        for finding in findings(section):
            print("\n" + "\n  ".join([finding.headline, *finding.details]))
    return page


def demo_jobs(output: Path, algorithm: str, env: str, steps: int, seeds: int) -> dict[str, Job]:
    """Return the runs by their labels, such as "tanh + HR, seed 0"."""
    base = overridden(default_spec(algorithm, env), _settings(steps))
    jobs = {}
    for seed in range(seeds):
        for variant, layer in LAYERS.items():
            folder = output / "runs" / f"{algorithm}_{env.replace('/', '-')}_{layer}_seed{seed}"
            spec = overridden(base, {"net.layer": layer, "seed": seed, "run_dir": str(folder)})
            spec.check()
            jobs[f"{variant}, seed {seed}"] = Job(algorithm, spec)
    return jobs


def _settings(steps: int) -> dict[str, Any]:
    # Ten diagnoses and checkpoints; the page shows the densities at the first, middle and last.
    return {
        "device": "cpu",
        "train.steps": steps,
        "train.threads": 1,
        "train.log_every": max(steps // 100, 1),
        "train.health_every": max(steps // 10, 2_048),
        "train.checkpoint_every": max(steps // 10, 2_048),
        "net.activation": "tanh",
    }


def _train(jobs: dict[str, Job], parallel: int) -> bool:
    """Train all runs; return whether they are finished, raise RunError if one fails."""
    labels = {job.path: label for label, job in jobs.items()}
    runs = list(jobs.values())
    check_jobs(runs)
    queue = Queue(runs, slots(runs, Options(jobs=parallel)), retries=0, stop_at_failure=True)
    summary = queue.run(functools.partial(live_view, label=lambda job: labels[job.path]))
    for outcome in summary.failed:
        log = "\n".join(outcome.printable_log)
        raise RunError(f"the demo's run {labels[outcome.job.path]} failed:\n{log}")
    return not summary.interrupted and not summary.not_started
