"""The demo: tanh against tanh + HR, trained here and now, and the page that compares them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadamard import envs
from hadamard.core.config import to_dict
from hadamard.core.run import Run, RunError
from hadamard.progress import describe, duration
from hadamard.report.comparison import write_comparison
from hadamard.report.reading import reading
from hadamard.report.runs import load, sections
from hadamard.train import default_spec

VARIANTS = {"tanh": "plain", "tanh + HR": "hadamard"}


@dataclass
class Job:
    """One run of the demo, in a process of its own."""

    name: str
    path: Path
    flags: list[str]
    steps: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def finished(self) -> bool:
        """Whether the run's folder says that it is done."""
        return Run(self.path).done is not None

    def start(self) -> None:
        """Train in the background, one thread; what an earlier demo began is gone on with."""
        command = [sys.executable, "-m", "hadamard.cli", "train"]
        if (self.path / "config.json").exists():
            command += ["--resume", str(self.path)]
        else:
            command += [*self.flags, "--run-dir", str(self.path)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".log"), "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def check(self) -> None:
        """Raise if the process ended without finishing the run."""
        if self.process is not None and self.process.poll() is not None and not self.finished:
            tail = self.path.with_suffix(".log").read_text(errors="replace").strip()[-800:]
            raise RunError(f"the demo's run {self.name} failed:\n{tail}")

    def facts(self) -> dict[str, Any]:
        """Read how far the run is from its folder."""
        facts: dict[str, Any] = {"step": 0}
        if self.path.is_dir():
            run = Run(self.path)
            for row in run.rows("train"):
                facts |= {"step": row["step"], "score": row["score"]}
            for row in run.rows("health"):
                layer = row["layers"][-1]
                facts |= {
                    "dormant": layer["dormant_fraction"],
                    "rank": layer["effective_rank"],
                    "full_rank": layer["full_rank"],
                }
        return facts


def demo(output: Path, algorithm: str, env: str, steps: int, seeds: int, jobs: int) -> Path:
    """Train all runs, a few at a time, and write the page; returns its path."""
    for name, value in (("steps", steps), ("seeds", seeds), ("jobs", jobs)):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    default_spec(algorithm, env)
    envs.make(env, 0, 1).close()  # a name that is wrong is told now, not by four runs
    waiting = [
        Job(
            f"{variant}, seed {seed}",
            output / "runs" / f"{algorithm}_{env.replace('/', '-')}_{layer}_seed{seed}",
            _flags(algorithm, env, steps, seed, layer),
            steps,
        )
        for seed in range(seeds)
        for variant, layer in VARIANTS.items()
    ]
    _run_all(waiting, jobs)
    page = output / "index.html"
    runs = load([job.path for job in waiting])
    write_comparison(
        page,
        runs,
        f"tanh with and without HR: {algorithm.upper()} on {env}",
        lambda algorithm, env: to_dict(default_spec(algorithm, env)),
    )
    for section in sections(runs):
        for finding in reading(section):
            print("\n" + "\n  ".join([finding.headline, *finding.details]))
    return page


def _flags(algorithm: str, env: str, steps: int, seed: int, layer: str) -> list[str]:
    # Ten diagnoses, and the densities of the first, the middle and the last.
    flags = {
        "--env": env,
        "--seed": seed,
        "--device": "cpu",
        "--train.steps": steps,
        "--train.threads": 1,
        "--train.log-every": max(steps // 100, 1),
        "--train.health-every": max(steps // 10, 2_048),
        "--train.checkpoint-every": max(steps // 10, 2_048),
        "--net.layer": layer,
        "--net.activation": "tanh",
    }
    return [algorithm, *(str(word) for pair in flags.items() for word in pair)]


def _run_all(all_jobs: list[Job], parallel: int) -> None:
    began = time.monotonic()
    waiting = [job for job in all_jobs if not job.finished]
    try:
        with _view(all_jobs, began) as show:
            running: list[Job] = []
            while waiting or running:
                while waiting and len(running) < parallel:
                    running.append(waiting.pop(0))
                    running[-1].start()
                for job in list(running):
                    job.check()
                    if job.process is not None and job.process.poll() is not None:
                        running.remove(job)
                show()
                time.sleep(0.5)
    finally:
        for job in all_jobs:
            if job.process is not None and job.process.poll() is None:
                job.process.terminate()
                job.process.wait()


@contextmanager
def _view(all_jobs: list[Job], began: float) -> Iterator[Any]:
    """Show a live table on a terminal, a line every 15 seconds elsewhere."""
    if not sys.stdout.isatty():
        last = [time.monotonic()]
        print(f"training {len(all_jobs)} runs of {all_jobs[0].steps:,} steps", flush=True)

        def lines() -> None:
            if time.monotonic() - last[0] >= 15:
                last[0] = time.monotonic()
                for job in all_jobs:
                    facts = job.facts()
                    if facts["step"] > 0 and not job.finished:
                        print(f"{job.name}: {facts['step'] / job.steps:.0%} · {describe(facts)}")
                sys.stdout.flush()

        yield lines
        for job in all_jobs:
            print(f"{job.name}: done · {describe(job.facts())}", flush=True)
        return

    from rich.live import Live

    with Live(_table(all_jobs, began), refresh_per_second=2) as live:
        yield lambda: live.update(_table(all_jobs, began))
        live.update(_table(all_jobs, began))


def _table(all_jobs: list[Job], began: float) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    spent = duration(time.monotonic() - began)
    table = Table(title=f"{all_jobs[0].steps:,} steps a run · {spent}", title_justify="left")
    for heading in ("run", "progress", "score", "dormant", "rank"):
        table.add_column(heading, justify="left" if heading in ("run", "progress") else "right")
    for job in all_jobs:
        facts = job.facts()
        score, dormant = facts.get("score"), facts.get("dormant")
        table.add_row(
            job.name,
            ProgressBar(total=job.steps, completed=min(facts["step"], job.steps), width=24),
            "" if score is None else f"{score:.1f}",
            "" if dormant is None else f"{dormant:.1%}",
            "" if dormant is None else f"{facts['rank']}/{facts['full_rank']}",
        )
    return table
