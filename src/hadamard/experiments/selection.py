"""Which runs belong to which arm of an experiment: by what they are, not by what they are called.

A run is an arm's if all settings that make the experiment are those that the arm would be run
with now: a run with another learning rate, budget or norm is never taken for it. How far it was
trained (``train.until``) is no such setting: its schedules are those of the whole budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hadamard.core.config import flattened, to_dict
from hadamard.core.run import PROTOCOL
from hadamard.experiments import paper
from hadamard.experiments.paper import Arm, Experiment, same_task
from hadamard.report.data.labels import changed
from hadamard.report.data.runs import RunData
from hadamard.report.statistics.panel import PanelRuns


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
    wanted: dict[tuple[str, str], list[tuple[Arm, Mapping[str, Any]]]] = {}
    for known, job in paper.arms_and_jobs(experiment, scale, Path("."), 1, tasks, share):
        settings = flattened(to_dict(job.spec))
        wanted.setdefault((job.algorithm, job.spec.env), []).append((known, settings))
    found = {}
    for panel in experiment.at(scale, share, until):
        chosen = paper.chosen(panel.tasks, tasks)
        limit = panel.seeds if seeds is None else seeds
        by_arm: dict[str, dict[str, list[RunData]]] = {}
        other_protocol: Counter[int] = Counter()
        more_seeds = 0
        for run in runs:
            task = next((task for task in chosen if same_task(run.env, task)), None)
            if run.algorithm != panel.algorithm or task is None:
                continue
            arm = _arm_of(run, wanted.get((panel.algorithm, task), ()))
            if arm is None:
                continue
            if run.protocol != PROTOCOL:
                other_protocol[run.protocol] += 1
            elif run.seed >= limit:
                more_seeds += 1
            else:
                by_arm.setdefault(arm.label, {}).setdefault(task, []).append(run)
        for of_task in by_arm.values():
            for task, alike in of_task.items():
                of_task[task] = _furthest(alike)
        remarks = [
            f"{_runs(count)} of protocol {version} left out: this version's is {PROTOCOL}, "
            "whose rules differ (see the changelog)."
            for version, count in sorted(other_protocol.items())
        ]
        if more_seeds:
            remarks.append(f"{_runs(more_seeds)} of further seeds left out: see --seeds.")
        end = panel.until or panel.steps
        reduced = _only(panel, chosen, limit)
        found[panel.algorithm] = PanelRuns(reduced, end, by_arm, remarks)
    return found


def _only(panel: paper.Panel, tasks: Sequence[str], seeds: int) -> paper.Panel:
    return panel.of(*panel.arms, tasks=tuple(tasks), seeds=seeds)


def _arm_of(run: RunData, wanted: Sequence[tuple[Arm, Mapping[str, Any]]]) -> Arm | None:
    """Return the arm whose settings a run has, all of them."""
    whole = {"train.until": 0}
    found = {**run.spec, **whole}
    return next((arm for arm, own in wanted if not changed({**own, **whole}, found)), None)


def _furthest(runs: Sequence[RunData]) -> list[RunData]:
    """Return one run of each seed, in their order: the one that came furthest."""
    by_seed: dict[int, RunData] = {}
    for run in sorted(runs, key=lambda run: run.reached):
        by_seed[run.seed] = run
    return [by_seed[seed] for seed in sorted(by_seed)]


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"
