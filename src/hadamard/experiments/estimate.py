"""Estimate the time, memory and disk that runs take, from short measurements on this machine.

Runs that differ only in settings that hardly affect speed, such as the seed, are of one kind. One
run of each kind is measured, see `cost`. The results are cached.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hadamard import __version__, envs
from hadamard.core.config import flattened, to_dict
from hadamard.core.cores import usable_cores
from hadamard.core.files import RunError, read_json, write_atomically
from hadamard.core.typed import checked, fields
from hadamard.experiments.cost import Cost, measure
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import fleets
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.queue import groups, slots
from hadamard.text import counted, data_size, duration

# Settings that hardly affect the speed of a run.
_SAME_SPEED = ("run_dir", "seed", "env", "train.steps", "train.until", "algo.learning_rate")


@dataclass(frozen=True)
class LabeledJob:
    """A run to estimate, with the name of its variant."""

    label: str
    job: Job

    @property
    def suite(self) -> str:
        """The suite of its environment."""
        return self.job.spec.env.partition("/")[0]

    @property
    def kind_name(self) -> str:
        """The name of its kind of runs."""
        return f"{self.job.algorithm} on {self.suite}, {self.label}"


def estimate(runs: Sequence[LabeledJob], options: Options) -> list[str]:
    """Return lines on the cost of runs, for each kind and in total."""
    at_a_time, together = options.jobs or 1, ""
    if options.launcher == "local":
        jobs = [run.job for run in runs]
        at_a_time = min(len(runs), len(slots(jobs, options)))
        together = fleets.in_words(groups(jobs, options, at_a_time))
    kinds: dict[str, list[LabeledJob]] = {}
    for run in runs:
        kinds.setdefault(_kind_key(run, options.threads), []).append(run)
    costs = costs_of_kinds({key: kind[0] for key, kind in kinds.items()}, options.threads)
    lines = ["estimated cost of the remaining runs, from the throughput of this machine:"]
    seconds = disk = memory = gpu_memory = 0.0
    unknown, busy = 0, False
    for key, kind in kinds.items():
        name, cost = f"{kind[0].kind_name}: {counted(len(kind), 'run')}", costs[key]
        if isinstance(cost, str):
            unknown += len(kind)
            lines.append(f"  {name}, unknown ({cost})")
            continue
        specs = [run.job.spec for run in kind]
        kind_seconds = sum(cost.seconds(spec) for spec in specs)
        sizes = [cost.bytes_on_disk(spec) for spec in specs]
        largest = max(cost.bytes_in_memory(spec) for spec in specs)
        seconds, disk = seconds + kind_seconds, disk + sum(sizes)
        memory, gpu_memory = max(memory, largest), max(gpu_memory, cost.gpu_memory_bytes)
        busy |= cost.load > usable_cores()
        lines.append(
            f"  {name} of {duration(kind_seconds / len(kind))} "
            f"({_short_rate(cost.steps_per_second)} steps/s), {data_size(largest)} memory, "
            f"{data_size(max(sizes))} disk each"
        )
    if unknown < len(runs):
        on_gpu = f" and {data_size(gpu_memory * at_a_time)} on the GPU" if gpu_memory else ""
        lines.append(
            f"in all about {duration(seconds)} of runs one after another, "
            f"{duration(seconds / at_a_time)} with {at_a_time} at a time; up to "
            f"{data_size(memory * at_a_time)} memory{on_gpu}, {data_size(disk)} disk"
        )
    if together:
        lines.append(f"{together}; the estimate is of separate runs")
    if unknown:
        lines.append(f"unknown for {unknown} of {counted(len(runs), 'run')}: not in the sum")
    if busy:
        lines.append("the machine was busy with other programs meanwhile: it likely takes less")
    return [*lines, f"(measurements are kept in {cache_file()}; remove it to measure again)"]


def _kind_key(run: LabeledJob, threads: int) -> str:
    """Return a key that all runs of one kind share, on this machine and in this version."""
    spec = flattened(to_dict(run.job.spec))
    settings = {name: value for name, value in spec.items() if name not in _SAME_SPEED}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    machine = [platform.node(), platform.machine(), os.cpu_count(), gpu, threads]
    parts = [machine, torch.__version__, __version__, run.job.algorithm, run.suite, settings]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def cache_file() -> Path:
    """Return the file in which measurements are cached."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder, "hadamard", "throughput.json")


def costs_of_kinds(kinds: dict[str, LabeledJob], threads: int) -> dict[str, Cost | str]:
    """Return the cost of each kind of run, measured earlier or now.

    Args:
        kinds: One run of each kind, by the kind's key.
        threads: CPU threads of a run.

    Returns:
        By the same keys, a cost, or the reason why there is none.
    """
    file = cache_file()
    try:
        values = read_json(file, dict[str, dict[str, Any]])
        cached = {key: _cost(value) for key, value in values.items()}
    except (OSError, RunError, ValueError, TypeError):  # no cache, or one of another version
        cached = {}
    costs: dict[str, Cost | str] = {}
    for number, (key, run) in enumerate(kinds.items(), start=1):
        if key in cached:
            costs[key] = cached[key]
        elif envs.missing(run.suite):
            costs[key] = f"{run.suite} is not installed: {envs.install_command(run.suite)}"
        else:
            position = f"({number} of {len(kinds)})"
            print(f"measuring {run.kind_name} {position} ...", file=sys.stderr, flush=True)
            cost = costs[key] = measure(run.job, threads)
            if isinstance(cost, Cost):
                cached[key] = cost
                file.parent.mkdir(parents=True, exist_ok=True)
                values = {name: dataclasses.asdict(known) for name, known in cached.items()}
                write_atomically(file, json.dumps(values, indent=1))
    return costs


def _cost(values: dict[str, Any]) -> Cost:
    """Return a cost from values of a file; raise ValueError or TypeError for wrong ones."""
    kinds = fields(Cost)
    return Cost(**{name: checked(value, kinds.get(name), name) for name, value in values.items()})


def _short_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
