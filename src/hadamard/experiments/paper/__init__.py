"""Every experiment of the paper as data: what it shows, its runs, and the paper's numbers.

An experiment has panels, one for each algorithm in it; a panel has arms (the variants it
compares), tasks, seeds and a budget. `jobs` returns its runs at one of the scales. A run's folder
is named after the run's settings, not after the experiment: Figure 1 and Table 2 reuse the runs
of other experiments.

The classes are in `model`; the experiments in `mechanism`, `main_results` and `appendix`, by name
in `entries`; their arms in `arms`, numbers and notes that several have in `shared`, tasks in
`tasks`, sizes in `scales`. Experiments of our own are in `studies`, and what the paper states that
no runs can decide in `statements`. Nothing here imports torch before `jobs` is called.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hadamard.core import identity, require
from hadamard.experiments.paper.entries import EXPERIMENTS, WITHOUT_RUNS
from hadamard.experiments.paper.model import Arm, Claim, Experiment, Panel, Plot, Shading, Stated
from hadamard.experiments.paper.scales import SCALES, shortened
from hadamard.experiments.paper.statements import STATEMENTS, Statement
from hadamard.experiments.paper.studies import STUDIES
from hadamard.experiments.paper.tasks import ATARI_8, ATARI_51, HUMANOID_14, MINATAR_5

if TYPE_CHECKING:
    from hadamard.experiments.grid import Job

__all__ = [
    "ATARI_8",
    "ATARI_51",
    "EXPERIMENTS",
    "HUMANOID_14",
    "MINATAR_5",
    "SCALES",
    "STATEMENTS",
    "STUDIES",
    "WITHOUT_RUNS",
    "Arm",
    "Claim",
    "Experiment",
    "Panel",
    "Plot",
    "Shading",
    "Stated",
    "Statement",
    "arms_and_jobs",
    "find",
    "jobs",
    "listing",
    "run_name",
    "same_task",
    "select_tasks",
]


def find(name: str) -> Experiment:
    """Return an experiment by its name; the error for an unknown one suggests similar names."""
    known = {**EXPERIMENTS, **STUDIES}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise ValueError(
        f"unknown experiment {name!r}{hint} There are: {', '.join(known)} "
        "(`hadamard reproduce --list` says what each shows)"
    )


def listing() -> str:
    """Return one line for each experiment: name, place in the paper, what it shows."""
    experiments = [*EXPERIMENTS.values(), *STUDIES.values()]
    name = max(len(experiment.name) for experiment in experiments)
    place = max(len(experiment.place) for experiment in experiments)
    return "\n".join(f"{e.name:<{name}}  {e.place:<{place}}  {e.shows}" for e in experiments)


def jobs(
    experiment: Experiment | str,
    scale: str,
    folder: str | Path,
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
    share: float = 1.0,
    until: int | None = None,
) -> list[Job]:
    """Return the runs of an experiment at a scale, task by task, seed by seed, arm by arm.

    Args:
        experiment: The experiment or its name.
        scale: One of `SCALES`.
        folder: Where runs go, under ``folder/scale``.
        seeds: How many seeds, if not as many as the scale has.
        tasks: Only these of its tasks, as ``suite/task`` or ``task``.
        share: The fraction of the scale's budget of steps that a run is trained for.
        until: Steps after which every run stops for now; its folder does not depend on them.
    """
    return [job for _, job in arms_and_jobs(experiment, scale, folder, seeds, tasks, share, until)]


def arms_and_jobs(
    experiment: Experiment | str,
    scale: str,
    folder: str | Path,
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
    share: float = 1.0,
    until: int | None = None,
) -> list[tuple[Arm, Job]]:
    """Return the runs as `jobs` does, each with its arm."""
    experiment = find(experiment) if isinstance(experiment, str) else experiment
    if seeds is not None:
        require.seeds(seeds)
    return [
        (arm, _job(panel, arm, task, seed, Path(folder) / scale))
        for panel in experiment.panels_at(scale, share, until)
        for task in select_tasks(panel.tasks, tasks)
        for seed in range(panel.seeds if seeds is None else seeds)
        for arm in panel.trained
    ]


def select_tasks(tasks: Iterable[str], names: Sequence[str] | None) -> list[str]:
    """Return the tasks that are named, with or without their suite; all if names is None."""
    if names is None:
        return list(tasks)
    return [task for task in tasks if any(same_task(task, name) for name in names)]


def same_task(task: str, name: str) -> bool:
    """Tell whether a name, with or without its suite, means a task.

    Examples:
        >>> same_task("minatar/space_invaders", "Space-Invaders")
        True
    """
    task, name = (text.lower().replace("_", "-") for text in (task, name))
    return name in (task, task.partition("/")[2])


def _job(panel: Panel, arm: Arm, task: str, seed: int, folder: Path) -> Job:
    from hadamard.core.config import overridden
    from hadamard.experiments.grid import Job
    from hadamard.training.start import default_spec

    changes = {**panel.overrides, **identity.variant(arm.variant), **arm.overrides}
    changes = identity.without_unused(changes)
    spec = shortened(overridden(default_spec(panel.algorithm, task), changes), panel.share)
    run_settings = {
        "train.steps": panel.steps,
        "train.until": panel.until,
        "seed": seed,
        "run_dir": str(folder / run_name(panel, arm, task, seed)),
    }
    return Job(panel.algorithm, overridden(spec, run_settings))


def run_name(panel: Panel, arm: Arm, task: str, seed: int) -> str:
    """Return a run's folder name, which depends on its settings alone so experiments can share it.

    Examples:
        >>> (panel,) = EXPERIMENTS["fig-width-lr"].panels
        >>> run_name(panel, panel.arms[3], "atari/Qbert", 3)
        'dqn_atari-Qbert_widened_learning-rate-2.5e-05_10M_seed3'
    """
    changes = arm.overrides.items()
    changed = [identity.setting_words(name, value, dashes=True) for name, value in changes]
    parts = [arm.variant, *changed, _short_number(panel.steps)]
    return identity.run_name(panel.algorithm, task, parts, seed)


def _short_number(steps: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and steps * 10 % size == 0:
            return f"{steps / size:g}{letter}"
    return str(steps)
