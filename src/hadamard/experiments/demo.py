"""The demo trains tanh and tanh + HR on this machine and writes a page that compares them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hadamard import envs
from hadamard.core import require
from hadamard.core.config import RunSpec, overridden, to_dict
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


LEARNING_RATES = {"dqn": 4e-3}
"""Learning rates at which tanh saturates within minutes, see docs/demo.md; DQN's is 40 times the
usual one. Other algorithms keep theirs."""


@dataclass(frozen=True)
class Setting:
    """What the demo trains."""

    algorithm: str
    env: str
    steps: int
    learning_rate: float | None = None
    """None: that of `LEARNING_RATES`, or the algorithm's own."""

    @property
    def base(self) -> RunSpec[Any]:
        """The settings that all runs share."""
        spec: RunSpec[Any] = default_spec(self.algorithm, self.env)
        return cast(RunSpec[Any], overridden(spec, self._changes()))

    def _changes(self) -> dict[str, Any]:
        # Ten diagnoses and checkpoints; the page shows the densities at the first, middle and last.
        often = max(self.steps // 10, 2_048)
        changes = {
            "device": "cpu",
            "train.steps": self.steps,
            "train.threads": 1,
            "train.log_every": max(self.steps // 100, 1),
            "train.health_every": often,
            "train.checkpoint_every": often,
            "net.activation": "tanh",
        }
        rate = self.learning_rate or LEARNING_RATES.get(self.algorithm)
        return changes if rate is None else {**changes, "algo.learning_rate": rate}

    @property
    def words(self) -> str:
        """Algorithm, environment, and the learning rate where it is not the usual one."""
        title = f"{self.algorithm.upper()} on {self.env}"
        usual, rate = (
            getattr(spec.algo, "learning_rate", None)
            for spec in (default_spec(self.algorithm, self.env), self.base)
        )
        if rate is None or usual is None or rate == usual:
            return title
        return f"{title}, learning rate {rate:g} ({rate / usual:.3g} times the usual one)"


def demo(output: Path, setting: Setting, seeds: int, parallel: int) -> Path | None:
    """Train all runs and write the page.

    Returns:
        The path of the page, or None if the runs were asked to stop and have saved.
    """
    for name, value in (("steps", setting.steps), ("jobs", parallel)):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    if setting.learning_rate is not None and setting.learning_rate <= 0:
        raise ValueError(f"--learning-rate must be above 0, got {setting.learning_rate:g}")
    require.seeds(seeds)
    envs.make(setting.env, 0, 1).close()  # a wrong name is reported once, not by every run
    jobs = demo_jobs(output, setting, seeds)
    print(f"tanh with and without HR: {setting.words}")
    if not _train(jobs, parallel):
        return None
    page = output / "index.html"
    runs = load([job.path for job in jobs.values()])
    write_comparison(
        page,
        runs,
        f"tanh with and without HR: {setting.words}",
        lambda algorithm, env: to_dict(default_spec(algorithm, env)),
    )
    for section in sections(runs):
        for finding in findings(section):
            print("\n" + "\n  ".join([finding.headline, *finding.details]))
    return page


def demo_jobs(output: Path, setting: Setting, seeds: int) -> dict[str, Job]:
    """Return the runs by their labels, such as "tanh + HR, seed 0"."""
    base, prefix = setting.base, f"{setting.algorithm}_{setting.env.replace('/', '-')}"
    jobs = {}
    for seed in range(seeds):
        for variant, layer in LAYERS.items():
            folder = output / "runs" / f"{prefix}_{layer}_seed{seed}"
            spec = overridden(base, {"net.layer": layer, "seed": seed, "run_dir": str(folder)})
            spec.check()
            jobs[f"{variant}, seed {seed}"] = Job(setting.algorithm, spec)
    return jobs


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
