"""Assign runs to the arms of an experiment by their settings, not their names.

A run belongs to an arm if all its settings are those that the arm's runs have now: a run with
another learning rate, budget or norm does not. ``train.until`` is ignored, since the schedules
follow the whole budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hadamard.core.config import flattened, to_dict
from hadamard.core.identity import changed
from hadamard.core.run import PROTOCOL
from hadamard.experiments import paper
from hadamard.experiments.paper import Arm, Experiment, same_task
from hadamard.report.data.run_data import RunData
from hadamard.report.statistics.panel import PanelRuns

ArmSettings = tuple[Arm, Mapping[str, Any]]


def select(
    experiment: Experiment,
    runs: Sequence[RunData],
    scale: str,
    *,
    share: float = 1.0,
    until: int | None = None,
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
) -> dict[str, PanelRuns]:
    """Return the runs of each panel of an experiment at a scale, by algorithm."""
    arms: dict[tuple[str, str], list[ArmSettings]] = {}
    for arm, job in paper.arms_and_jobs(experiment, scale, Path("."), 1, tasks, share):
        settings = flattened(to_dict(job.spec))
        arms.setdefault((job.algorithm, job.spec.env), []).append((arm, settings))
    selected = {}
    for panel in experiment.panels_at(scale, share, until):
        panel_tasks = paper.select_tasks(panel.tasks, tasks)
        seed_limit = panel.seeds if seeds is None else seeds
        by_arm: dict[str, dict[str, list[RunData]]] = {}
        other_protocols: Counter[int] = Counter()
        more_seeds = 0
        for run in runs:
            task = next((task for task in panel_tasks if same_task(run.env, task)), None)
            if run.algorithm != panel.algorithm or task is None:
                continue
            run_arm = _arm_of(run, arms.get((panel.algorithm, task), ()))
            if run_arm is None:
                continue
            if run.protocol != PROTOCOL:
                other_protocols[run.protocol] += 1
            elif run.seed >= seed_limit:
                more_seeds += 1
            else:
                by_arm.setdefault(run_arm.label, {}).setdefault(task, []).append(run)
        for by_task in by_arm.values():
            for task, task_runs in by_task.items():
                by_task[task] = _furthest(task_runs)
        remarks = [
            f"{_runs(count)} of protocol {version} left out: this version's is {PROTOCOL}, "
            "whose rules differ (see the changelog)."
            for version, count in sorted(other_protocols.items())
        ]
        if more_seeds:
            remarks.append(f"{_runs(more_seeds)} of further seeds left out: see --seeds.")
        final_step = panel.until or panel.steps
        selected_panel = panel.with_arms(*panel.arms, tasks=tuple(panel_tasks), seeds=seed_limit)
        selected[panel.algorithm] = PanelRuns(selected_panel, final_step, by_arm, remarks)
    return selected


def _arm_of(run: RunData, arms: Sequence[ArmSettings]) -> Arm | None:
    """Return the arm that has a run's settings, whatever their ``train.until``."""
    no_early_end = {"train.until": 0}
    recorded = {**run.spec, **no_early_end}
    return next(
        (arm for arm, settings in arms if not changed({**settings, **no_early_end}, recorded)), None
    )


def _furthest(runs: Sequence[RunData]) -> list[RunData]:
    """Return the run with the most steps of each seed, ordered by seed."""
    by_seed: dict[int, RunData] = {}
    for run in sorted(runs, key=lambda run: run.reached):
        by_seed[run.seed] = run
    return [by_seed[seed] for seed in sorted(by_seed)]


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"
