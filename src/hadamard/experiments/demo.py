"""The demo: tanh against tanh + HR, trained here and now, and the page that compares them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hadamard import envs
from hadamard.core.config import overridden, to_dict
from hadamard.core.run import Run, RunError
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, Queue, check, slots
from hadamard.progress import describe, duration
from hadamard.report.data.runs import load, sections
from hadamard.report.pages.comparison import write_comparison
from hadamard.report.pages.reading import reading
from hadamard.train import default_spec
from hadamard.trainer import Interrupted

VARIANTS = {"tanh": "plain", "tanh + HR": "hadamard"}


def demo(output: Path, algorithm: str, env: str, steps: int, seeds: int, jobs: int) -> Path:
    """Train all runs, a few at a time, and write the page; returns its path."""
    for name, value in (("steps", steps), ("seeds", seeds), ("jobs", jobs)):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    base = default_spec(algorithm, env)
    envs.make(env, 0, 1).close()  # a name that is wrong is told now, not by four runs
    made = {}
    for seed in range(seeds):
        for variant, layer in VARIANTS.items():
            run = f"{algorithm}_{env.replace('/', '-')}_{layer}_seed{seed}"
            changes = {"net.layer": layer, "seed": seed, "run_dir": str(output / "runs" / run)}
            spec = overridden(base, {**_settings(steps), **changes})
            spec.check()
            made[f"{variant}, seed {seed}"] = Job(algorithm, spec)
    _train(made, jobs)
    page = output / "index.html"
    runs = load([job.path for job in made.values()])
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


def _settings(steps: int) -> dict[str, Any]:
    # Ten diagnoses, and the densities of the first, the middle and the last.
    return {
        "device": "cpu",
        "train.steps": steps,
        "train.threads": 1,
        "train.log_every": max(steps // 100, 1),
        "train.health_every": max(steps // 10, 2_048),
        "train.checkpoint_every": max(steps // 10, 2_048),
        "net.activation": "tanh",
    }


def _train(made: dict[str, Job], parallel: int) -> None:
    """Make all runs; the first that fails stops the others."""
    jobs = list(made.values())
    check(jobs)
    queue = Queue(jobs, slots(jobs, Options(jobs=parallel)), retries=0)
    summary = queue.run(lambda queue: _view(made, queue))
    names = {job.path: name for name, job in made.items()}
    for outcome in summary.failed:
        name = names[outcome.job.path]
        raise RunError(f"the demo's run {name} failed:\n{outcome.tail}")
    if summary.interrupted or summary.unbegun:
        raise Interrupted


def _facts(path: Path) -> dict[str, Any]:
    """Read how far a run is, and how healthy, from its folder."""
    facts: dict[str, Any] = {"step": 0}
    if path.is_dir():
        run = Run(path)
        for row in run.rows("train"):
            facts |= {"step": row["step"], "score": row["score"]}
        for row in run.rows("health"):
            layer = next(one for one in row["layers"] if one["name"] == row["representation"])
            facts |= {
                "dormant": layer["dormant_fraction"],
                "rank": layer["effective_rank"],
                "full_rank": layer["full_rank"],
            }
    return facts


@contextmanager
def _view(made: dict[str, Job], queue: Queue) -> Iterator[Callable[[], None]]:
    """Show a live table on a terminal, a line every 15 seconds elsewhere."""
    began = time.monotonic()
    steps = next(iter(made.values())).spec.train.steps

    def stop_if_one_failed() -> None:
        if any(outcome.state == "failed" for outcome in list(queue.outcomes.values())):
            queue.stop()

    if not sys.stdout.isatty():
        last = [time.monotonic()]
        print(f"training {len(made)} runs of {steps:,} steps", flush=True)

        def lines() -> None:
            stop_if_one_failed()
            if time.monotonic() - last[0] >= 15:
                last[0] = time.monotonic()
                for name, job in made.items():
                    facts = _facts(job.path)
                    if facts["step"] > 0 and job.path not in queue.outcomes:
                        print(f"{name}: {facts['step'] / steps:.0%} · {describe(facts)}")
                sys.stdout.flush()

        yield lines
        for name, job in made.items():
            if Run(job.path).done is not None:
                print(f"{name}: done · {describe(_facts(job.path))}", flush=True)
        return

    from rich.live import Live

    with Live(_table(made, steps, began), auto_refresh=False) as live:
        last = [0.0]

        def show() -> None:
            stop_if_one_failed()
            if time.monotonic() - last[0] >= 0.5:
                last[0] = time.monotonic()
                live.update(_table(made, steps, began), refresh=True)

        yield show
        live.update(_table(made, steps, began), refresh=True)


def _table(made: dict[str, Job], steps: int, began: float) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    spent = duration(time.monotonic() - began)
    table = Table(title=f"{steps:,} steps a run · {spent}", title_justify="left")
    for heading in ("run", "progress", "score", "dormant", "rank"):
        table.add_column(heading, justify="left" if heading in ("run", "progress") else "right")
    for name, job in made.items():
        facts = _facts(job.path)
        score, dormant = facts.get("score"), facts.get("dormant")
        table.add_row(
            name,
            ProgressBar(total=steps, completed=min(facts["step"], steps), width=24),
            "" if score is None else f"{score:.1f}",
            "" if dormant is None else f"{dormant:.1%}",
            "" if dormant is None else f"{facts['rank']}/{facts['full_rank']}",
        )
    return table
