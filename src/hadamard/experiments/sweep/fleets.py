"""Which runs of a sweep are trained together, by one process as one computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hadamard.core.run import Run, RunError
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.options import Options
from hadamard.text import counted


def groups(
    jobs: Sequence[Job], options: Options, slots: int, *, gpus: bool
) -> list[tuple[Job, ...]]:
    """Return the jobs of each process: fleets of one shape, and runs on their own.

    Args:
        jobs: The runs to train.
        options: The options of the sweep.
        slots: How many processes train at a time; fleets are divided until there are as many.
        gpus: Whether there is a GPU for the runs whose device is not the CPU.
    """
    given = {job.path: job for job in jobs}
    if options.fleet:
        jobs = _with_emulators(jobs, slots, gpus=gpus)
    stacked = [job for job in jobs if options.fleet and _is_stacked(job, gpus=gpus)]
    paths = {job.path for job in stacked}
    units = [[job] for job in jobs if job.path not in paths]
    if stacked:
        from hadamard.training import fleet

        specs = [fleet.with_form(job.spec, "on") for job in stacked]
        algorithms = [job.algorithm for job in stacked]
        units += fleet.grouped(stacked, algorithms, specs, list(map(_trained_steps, stacked)))
    parts = [-(-len(unit) // options.fleet_size) for unit in units]
    while units and sum(parts) < slots:
        sizes = [len(unit) / count for unit, count in zip(units, parts, strict=True)]
        if (largest := max(sizes)) <= 1:
            break
        parts[sizes.index(largest)] += 1
    order = {job.path: position for position, job in enumerate(jobs)}
    divided = [
        tuple(
            given[job.path]
            for job in unit[len(unit) * part // count : len(unit) * (part + 1) // count]
        )
        for unit, count in zip(units, parts, strict=True)
        for part in range(count)
    ]
    return sorted(divided, key=lambda unit: order[unit[0].path])


def _with_emulators(jobs: Sequence[Job], slots: int, *, gpus: bool) -> list[Job]:
    """Return the jobs with the place of their emulators, as far as it is known here.

    A new run's process decides it by the runs it is given; here it is assumed that they are many
    enough if those of a slot are.
    """
    from hadamard import envs
    from hadamard.training import emulators, fleet

    chosen, open_ = list(jobs), []
    for index, job in enumerate(jobs):
        run = Run(job.path)
        try:
            if run.exists:
                choice = run.config["spec"]["train"].get("emulators", "cpu")
                spec = emulators.with_emulators(job.spec, choice)
                chosen[index] = replace(job, spec=spec)
            elif job.spec.train.emulators == "auto" and gpus and job.spec.device != "cpu":
                spec = emulators.with_emulators(job.spec, "gpu")
                begins = fleet.begins_on(job.algorithm, spec, on_gpu=True)
                if begins and envs.has_emulators(spec.env):
                    open_.append((index, replace(job, spec=spec)))
        except (RunError, OSError, KeyError, TypeError, AttributeError, ValueError, ImportError):
            continue  # it is damaged or wrong, which its process reports
    environments = sum(emulators.environments(job.spec) for _, job in open_)
    if environments // slots >= emulators.MANY:
        for index, job in open_:
            chosen[index] = job
    return chosen


def _trained_steps(job: Job) -> int:
    """Return how far a run is trained; 0 if that cannot be read, which its process reports."""
    from hadamard.training.start import trained_steps

    try:
        return trained_steps(Run(job.path))
    except (RunError, OSError):
        return 0


def in_words(units: Sequence[Sequence[Job]]) -> str:
    """Return a sentence on the fleets among the runs of each process; empty if there are none."""
    sizes = [len(unit) for unit in units if len(unit) > 1]
    if not sizes:
        return ""
    size = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{max(sizes)}"
    return f"{sum(sizes)} of them are trained in {counted(len(sizes), 'fleet')} of {size} runs"


def _is_stacked(job: Job, *, gpus: bool) -> bool:
    """Tell whether a run is trained in the form of a fleet; one that was begun keeps its form."""
    run = Run(job.path)
    if run.exists:
        try:
            return bool(run.config["spec"]["train"]["fleet"] == "on")
        except (RunError, OSError, KeyError, TypeError):  # it is damaged, or of an earlier version
            return False
    on_gpu = gpus and job.spec.device != "cpu"
    if job.spec.train.fleet == "off" or (job.spec.train.fleet == "auto" and not on_gpu):
        return False
    from hadamard.training import fleet

    try:
        return fleet.begins_on(job.algorithm, job.spec, on_gpu=on_gpu, together=True)
    except (ValueError, ImportError):
        if job.spec.train.fleet == "on":
            raise
        return False  # such as an unknown task, which the run itself reports
