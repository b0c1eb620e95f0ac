"""Train the runs of the paper's experiments, or estimate beforehand what they take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hadamard import envs
from hadamard.experiments import paper
from hadamard.experiments.estimate import LabeledJob, estimate
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.launchers import check_jobs, launch
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.outcome import Summary
from hadamard.text import counted, did_you_mean


@dataclass(frozen=True)
class Request:
    """Which experiments are reproduced, at which scale and in which folder."""

    names: tuple[str, ...]
    scale: str = "smoke"
    folder: Path = Path("runs/paper")
    seeds: int | None = None
    tasks: tuple[str, ...] = ()
    share: float = 1.0
    until: int | None = None

    @property
    def experiments(self) -> list[paper.Experiment]:
        """The experiments, each once; ``all`` is every one of the paper."""
        if not self.names:
            raise ValueError(
                "name the experiments to reproduce, or all. There are: "
                f"{', '.join([*paper.EXPERIMENTS, *paper.STUDIES])} (`hadamard reproduce --list`)"
            )
        if "all" in self.names:
            return list(paper.EXPERIMENTS.values())
        return list({name: paper.find(name) for name in self.names}.values())

    @property
    def scale_in_words(self) -> str:
        """The scale, and the share of its budget."""
        share = f", {100 * self.share:.4g} % of its budget" if self.share != 1 else ""
        return f"{self.scale}{share}"

    @property
    def runs_folder(self) -> Path:
        """The folder of this scale's runs."""
        return self.folder / self.scale


@dataclass(frozen=True)
class PlannedRun(LabeledJob):
    """A run of one or more experiments; its label is that of its arm."""

    @property
    def finished(self) -> bool:
        """Whether the run is trained to its end."""
        return self.job.finished


def plan(request: Request) -> list[PlannedRun]:
    """Return all requested runs, each once; raise ValueError for settings that cannot run."""
    experiments = request.experiments
    _check_tasks(request, experiments)
    planned: dict[Path, PlannedRun] = {}
    for experiment in experiments:
        for arm, job in paper.arms_and_jobs(
            experiment,
            request.scale,
            request.folder,
            request.seeds,
            request.tasks or None,
            request.share,
            request.until,
        ):
            if job.path not in planned:
                check_settings(job, request.share)
                planned[job.path] = PlannedRun(arm.label, job)
    check_jobs([run.job for run in planned.values()])
    return list(planned.values())


def _check_tasks(request: Request, experiments: Sequence[paper.Experiment]) -> None:
    """Refuse a task that none of the experiments has."""
    panels = [panel for experiment in experiments for panel in experiment.panels_at(request.scale)]
    known = list(dict.fromkeys(task for panel in panels for task in panel.tasks))
    for name in request.tasks:
        if not paper.select_tasks(known, [name]):
            hint = did_you_mean(name, [*known, *(task.partition("/")[2] for task in known)], 1)
            raise ValueError(
                f"none of the experiments has the task {name!r}{hint or '.'} "
                f"Tasks: {', '.join(known)}"
            )


def check_settings(job: Job, share: float) -> None:
    """Refuse settings that cannot be run; a reduced budget is named as the cause."""
    try:
        job.spec.check()
    except ValueError as error:
        if share == 1:
            raise
        raise ValueError(f"--share {share:g} is too little for {job.name}: {error}") from None


def missing_suites(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Return the suites that are not installed, each with the command that installs it."""
    suites = dict.fromkeys(run.suite for run in runs)
    return {name: envs.install_command(name) for name in suites if envs.missing(name)}


def check_installed(runs: Sequence[PlannedRun]) -> None:
    """Refuse runs whose suites are not installed, before the first run starts."""
    if missing := missing_suites(runs):
        commands = "; ".join(f"{suite}: {command}" for suite, command in missing.items())
        raise envs.MissingExtra(f"not installed: {commands}. Or leave those experiments out")


def train_runs(request: Request, options: Options) -> Summary:
    """Train all runs that are not finished, and print how they ended."""
    options.check()
    runs = plan(request)
    check_installed([run for run in runs if not run.finished])
    summary = launch([run.job for run in runs], options)
    print(summary)
    return summary


def relearn_runs(request: Request) -> list[str]:
    """Let the networks of finished runs relearn, in experiments that need it; return problems."""
    names = tuple(e.name for e in request.experiments if e.relearns)
    if not names:
        return []
    from hadamard.training.relearning import Budget, relearn

    runs = plan(dataclasses.replace(request, names=names))
    finished = [run.job.path for run in runs if run.finished]
    small = {"observations": 128, "updates": 20, "batch_size": 32}
    budget = Budget(**small) if request.scale == "smoke" else Budget()
    return relearn(finished, budget)


def dry_run(request: Request, options: Options) -> str:
    """Return text on the requested runs, how many are finished, and the cost of the others."""
    options.check()
    runs = plan(request)
    lines: list[str] = []
    for experiment in request.experiments:
        lines += _describe(experiment, request)
    unfinished = [run for run in runs if not run.finished]
    finished = len(runs) - len(unfinished)
    total = counted(len(runs), "different run")
    lines += ["", f"{total} in {request.runs_folder}, {finished:,} finished already"]
    if unfinished:
        lines += estimate(unfinished, options)
    return "\n".join(lines)


def _describe(experiment: paper.Experiment, request: Request) -> list[str]:
    """Return the lines that say which runs an experiment consists of."""
    scale = request.scale
    lines = [f"{experiment.name} ({experiment.place}) at scale {scale}: {experiment.shows}"]
    for panel in experiment.panels_at(scale, request.share, request.until):
        tasks = paper.select_tasks(panel.tasks, request.tasks or None)
        if not tasks:
            continue
        seeds = panel.seeds if request.seeds is None else request.seeds
        arms = panel.trained
        runs = counted(len(arms) * len(tasks) * seeds, "run")
        until = f", until {panel.until:,} for now" if panel.until else ""
        lines += [
            f"  {panel.algorithm}: {counted(len(arms), 'arm')} x {counted(len(tasks), 'task')} x "
            f"{counted(seeds, 'seed')} = {runs} of {panel.steps:,} steps{until}",
            f"    arms: {'; '.join(arm.label for arm in arms)}",
            f"    tasks: {', '.join(tasks)}",
        ]
    return lines
