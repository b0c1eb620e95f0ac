"""What is left of the paper's experiments at its own scale, and what it would take.

Estimates are measured by `python docs/estimate_costs.py` on one machine and kept in a file: making
the page again needs neither that machine nor its time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hadamard.core import machine
from hadamard.core.cores import usable_cores
from hadamard.core.files import read_json, write_atomically
from hadamard.core.typed import checked, fields
from hadamard.experiments import paper
from hadamard.experiments.estimate import LabeledJob, costs_of_kinds
from hadamard.experiments.paper import EXPERIMENTS, Experiment
from hadamard.experiments.reproduce import PlannedRun
from hadamard.report.data.run_data import RunData
from hadamard.text import steps_words

SCALE = "paper"


@dataclass(frozen=True)
class Costs:
    """The time of one run of each kind, on one machine."""

    machine: str
    date: str
    busy: bool
    """Whether other programs ran meanwhile: then runs likely take less."""
    seconds: Mapping[str, float]
    """By kind; kinds that could not be measured are left out."""

    def write(self, path: Path) -> None:
        """Write them into a file."""
        write_atomically(path, json.dumps(asdict(self), indent=1).encode() + b"\n")


def read_costs(path: Path) -> Costs:
    """Read the costs that `Costs.write` wrote."""
    kinds = fields(Costs)
    values = read_json(path)
    return Costs(**{name: checked(values[name], kind, name) for name, kind in kinds.items()})


def measure_costs() -> Costs:
    """Measure one run of every kind on this machine."""
    kinds: dict[str, LabeledJob] = {
        kind(run): run for name in EXPERIMENTS for run in planned(EXPERIMENTS[name])
    }
    costs = costs_of_kinds(kinds, threads=1)
    known = {key: cost for key, cost in costs.items() if not isinstance(cost, str)}
    return Costs(
        machine.describe(machine.choose_device("auto")),
        time.strftime("%Y-%m-%d"),
        any(cost.load > usable_cores() for cost in known.values()),
        {key: round(cost.seconds(kinds[key].job.spec), 1) for key, cost in known.items()},
    )


def planned(experiment: Experiment) -> list[PlannedRun]:
    """Return the runs of an experiment's first seed at the paper's scale."""
    jobs = paper.arms_and_jobs(experiment, SCALE, Path(), seeds=1)
    return [PlannedRun(arm.label, job) for arm, job in jobs]


def kind(run: PlannedRun) -> str:
    """Return the name of all runs that take as long."""
    return f"{run.kind_name}, {steps_words(run.job.spec.train.steps)} steps"


@dataclass(frozen=True)
class Remaining:
    """What of an experiment at the paper's scale is not trained yet."""

    runs: int
    unfinished: int
    seconds: float
    """Of the kinds whose cost is known, one run after another."""
    unknown: int
    """Unfinished runs of other kinds."""


def remaining(experiment: Experiment, runs: Iterable[RunData], costs: Costs) -> Remaining:
    """Return what is left of an experiment, given the runs at the paper's scale."""
    reached = {run.name: run.reached for run in runs}
    total, unfinished, unknown, seconds = 0, 0, 0, 0.0
    for run in planned(experiment):
        spec = run.job.spec
        panel = next(p for p in experiment.panels if p.algorithm == run.job.algorithm)
        for seed in range(panel.seeds):
            name = f"{run.job.path.name.removesuffix(f'_seed{spec.seed}')}_seed{seed}"
            left = max(0.0, 1 - reached.get(name, 0) / spec.train.steps)
            total += 1
            unfinished += left > 0
            if kind(run) in costs.seconds:
                seconds += left * costs.seconds[kind(run)]
            else:
                unknown += left > 0
    return Remaining(total, unfinished, seconds, unknown)
