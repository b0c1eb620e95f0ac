"""Run the paper's experiments, or tell beforehand what that would take on this machine."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hadamard import __version__, envs
from hadamard.core.config import RunSpec, flattened, overridden, to_dict
from hadamard.core.machine import choose_device
from hadamard.core.run import Run, write_atomically
from hadamard.experiments import paper, sweep
from hadamard.experiments.bench import Lane, Quiet
from hadamard.experiments.grid import Job
from hadamard.progress import duration
from hadamard.train import open_run
from hadamard.trainer import Trainer

SECONDS = 2.0
"""How long the training of one kind of run is measured."""
LIMIT = 300.0
"""Seconds after which a measurement is given up."""
# What hardly changes how fast a run is.
_ALIKE = ("run_dir", "seed", "env", "train.steps", "train.until", "algo.learning_rate")
# A warm-up would only be waited for. MR.Q makes as many encoder updates in a row as its period
# has steps: a short period makes as many in all, but spreads them.
_SHORTER: dict[str, dict[str, int]] = {
    "dqn": {"learning_starts": 1_000},
    "simbav2": {"learning_starts": 300},
    "mrq": {"random_steps": 300, "target_period": 2},
}


@dataclass(frozen=True)
class Asked:
    """Which experiments, at which scale, where, and how much of them."""

    names: tuple[str, ...]
    scale: str = "smoke"
    folder: Path = Path("runs/paper")
    seeds: int | None = None
    tasks: tuple[str, ...] = ()
    share: float = 1.0
    until: int | None = None

    @property
    def experiments(self) -> list[paper.Experiment]:
        """The experiments, each once; ``all`` is every one."""
        if not self.names:
            raise ValueError(
                "say which experiments to reproduce, or all. There are: "
                f"{', '.join(paper.EXPERIMENTS)} (`hadamard reproduce --list`)"
            )
        if "all" in self.names:
            return list(paper.EXPERIMENTS.values())
        return list({name: paper.find(name) for name in self.names}.values())

    @property
    def scale_words(self) -> str:
        """The scale, and how much of it."""
        part = f", {100 * self.share:.4g} % of its budget" if self.share != 1 else ""
        return f"{self.scale}{part}"

    @property
    def runs_folder(self) -> Path:
        """Where the runs of this scale are."""
        return self.folder / self.scale


@dataclass(frozen=True)
class Planned:
    """A run that experiments ask for."""

    arm: paper.Arm
    job: Job

    @property
    def suite(self) -> str:
        """Its environment's suite."""
        return self.job.spec.env.partition("/")[0]

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.job.finished


def plan(asked: Asked) -> list[Planned]:
    """Return all runs that are asked for, each once; what is wrong with any is said now."""
    experiments = asked.experiments
    known = [task for e in experiments for panel in e.at(asked.scale) for task in panel.tasks]
    for name in asked.tasks:
        if not paper.chosen(known, [name]):
            plain = {task.partition("/")[2].lower(): task for task in known} | {t: t for t in known}
            near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
            hint = f"; did you mean {plain[near[0]]!r}?" if near else "."
            there = ", ".join(dict.fromkeys(known))
            raise ValueError(f"no experiment asked for has the task {name!r}{hint} Tasks: {there}")
    found: dict[Path, Planned] = {}
    for experiment in experiments:
        for arm, job in paper.arms_and_jobs(
            experiment,
            asked.scale,
            asked.folder,
            asked.seeds,
            asked.tasks or None,
            asked.share,
            asked.until,
        ):
            if job.path not in found:
                _check(job, asked.share)
                found[job.path] = Planned(arm, job)
    sweep.check([run.job for run in found.values()])
    return list(found.values())


def _check(job: Job, share: float) -> None:
    """Refuse a run that cannot be made; of a share's settings only the share can be changed."""
    try:
        job.spec.check()
    except ValueError as error:
        if share == 1:
            raise
        raise ValueError(f"--share {share:g} is too little for {job.name}: {error}") from None


def missing_suites(runs: Sequence[Planned]) -> dict[str, str]:
    """Return the suites that are not installed, each with what installs it."""
    suites = dict.fromkeys(run.suite for run in runs)
    return {name: envs.install_command(name) for name in suites if envs.missing(name)}


def check_installed(runs: Sequence[Planned]) -> None:
    """Refuse to start what cannot run here, before the first run starts."""
    if absent := missing_suites(runs):
        told = "; ".join(f"{suite}: {command}" for suite, command in absent.items())
        raise envs.MissingExtra(f"not installed: {told}. Or leave those experiments out")


def make_runs(asked: Asked, options: sweep.Options) -> sweep.Summary:
    """Make all runs that are not finished."""
    options.check()
    runs = plan(asked)
    check_installed([run for run in runs if not run.finished])
    summary = sweep.launch([run.job for run in runs], options)
    print(summary)
    return summary


@dataclass(frozen=True)
class Measured:
    """What one kind of run takes on this machine."""

    steps_per_second: float
    learning: float
    """Seconds of a step that are learning; while replay is only filled there is none."""
    start: float
    """Seconds until the first step."""
    diagnosis: float
    evaluation: float
    saving: float
    memory: int
    """Bytes of the process, without the replay."""
    gpu_memory: int
    frame: int
    """Bytes of a stored frame."""
    checkpoint: int
    """Bytes of a checkpoint, without the replay."""
    rows: float
    """Bytes of log rows for each step."""
    diagnosis_rows: int
    density_rows: int
    load: float
    """Processes that wanted to run while it was measured, this one included."""
    when: str

    def seconds(self, spec: RunSpec[Any]) -> float:
        """Return the time of a run."""
        train, steps = spec.train, spec.train.horizon
        filling = [getattr(spec.algo, name, 0) for name in ("learning_starts", "random_steps")]
        total = self.start + steps / self.steps_per_second
        total -= min(sum(filling), steps) * self.learning
        total += _times(steps, train.health_every) * self.diagnosis
        total += _times(steps, train.checkpoint_every) * self.saving
        return total + (1 + _times(steps, train.eval_every)) * self.evaluation

    def bytes_in_memory(self, spec: RunSpec[Any]) -> float:
        """Return the memory of a run at its end."""
        return self.memory + self._replay(spec)

    def bytes_on_disk(self, spec: RunSpec[Any]) -> float:
        """Return the size of a run's folder: two checkpoints, one replay, and the streams."""
        train, steps = spec.train, spec.train.horizon
        total = 2 * self.checkpoint + self._replay(spec) + self.rows * steps
        total += _times(steps, train.health_every) * self.diagnosis_rows
        return total + _times(steps, train.checkpoint_every) * self.density_rows

    def _replay(self, spec: RunSpec[Any]) -> int:
        return self.frame * min(getattr(spec.algo, "replay_capacity", 0), spec.train.horizon)


def _times(steps: int, every: int) -> int:
    return steps // every if every else 0


class Trial(Lane):
    """A run's training for a few seconds, with a short warm-up and hardly any replay."""

    def __init__(self, job: Job, folder: Path) -> None:
        spec, began = job.spec, time.perf_counter()
        shorter = {
            f"algo.{name}": min(getattr(spec.algo, name), most)
            for name, most in _SHORTER.get(job.algorithm, {}).items()
        }
        if choose_device(spec.device).type == "cpu" and hasattr(spec.algo, "minibatches"):
            # Shorter rollouts of as large minibatches: as many updates a step, less to wait for.
            rollout, parts = spec.algo.rollout_steps, spec.algo.minibatches
            times = math.gcd(rollout, parts, 8)
            shorter |= {
                "algo.rollout_steps": rollout // times,
                "algo.minibatches": parts // times,
            }
        changes = {
            "run_dir": str(folder),
            "train.steps": min(spec.train.steps, 20_000),
            "train.until": 0,
            "train.tensorboard": False,
            "train.wandb": None,
            "train.checkpoint_every": 0,
            "train.health_every": 0,
            "train.eval_every": 0,
        }
        short = overridden(spec, {**changes, **shorter})
        self.spec, self.every = spec, spec.train.health_every
        self.trainer = Trainer(job.algorithm, short)
        run = Run.create(folder, {"algorithm": job.algorithm, "spec": to_dict(short)})
        self.trainer.open(run, Quiet, resume=False)
        self.start = time.perf_counter() - began
        self.warm_up()

    def result(self, seconds: float) -> Measured:
        """Measure everything an estimate is made of."""
        trainer, folder = self.trainer, self.trainer.run.path
        timing = self.measure(seconds)
        trainer._log()
        trainer.run.flush()
        streams = _size(folder)
        trainer._densities_due = False
        diagnosis = self.diagnosis_seconds()
        trainer.run.flush()
        diagnosis_rows = (_size(folder) - streams) // 3
        trainer._densities_due = True
        before = _size(folder)
        trainer.examine(trainer.obs.repeat(64, *[1] * (trainer.obs.dim() - 1)))
        trainer.run.flush()
        density_rows = _size(folder) - before
        before, began = _size(folder), time.perf_counter()
        trainer.save()
        saving, env = time.perf_counter() - began, trainer.envs.spec
        frame = torch.empty(env.obs_shape, dtype=env.obs_dtype, device="meta").nbytes // env.frames
        stored = frame * trainer.step if hasattr(self.spec.algo, "replay_capacity") else 0
        cuda = trainer.device.type == "cuda"
        return Measured(
            steps_per_second=timing.rate,
            learning=timing.parts["learning"] / max(1, timing.steps),
            start=self.start,
            diagnosis=diagnosis,
            evaluation=self._evaluation(timing.parts, timing.steps),
            saving=saving,
            memory=max(0, _memory() - stored),
            gpu_memory=torch.cuda.max_memory_reserved(trainer.device) if cuda else 0,
            frame=frame,
            checkpoint=max(0, _size(folder) - before - stored),
            rows=streams / max(1, trainer.step),
            diagnosis_rows=diagnosis_rows,
            density_rows=density_rows,
            load=os.getloadavg()[0],
            when=time.strftime("%Y-%m-%d"),
        )

    def _evaluation(self, parts: dict[str, float], steps: int) -> float:
        """Return the time of an evaluation: all its episodes are played side by side."""
        train = self.spec.train
        if not train.eval_every:
            return 0.0
        workers = train.eval_workers
        if workers is None:
            workers = envs.automatic_workers(self.trainer.spec.env, train.eval_episodes)
        stepping = parts["stepping"] * train.eval_episodes / max(1, workers)
        length = self.trainer.envs.spec.max_steps or 1_000
        return length * (parts["acting"] + stepping) / max(1, steps)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _memory() -> int:
    """Return the most memory this process has had, in bytes."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1_024


def measure(job: Job, threads: int = 1) -> Measured | str:
    """Measure a kind of run in a process of its own; a string says why it could not be."""
    variables = {**os.environ, **sweep.thread_variables(threads)}
    with tempfile.TemporaryDirectory() as folder:
        Run.create(folder, {"algorithm": job.algorithm, "spec": to_dict(job.spec)}).close()
        command = [sys.executable, "-m", __name__, folder, str(SECONDS)]
        began = time.time()  # a clock that both processes read
        try:
            done = subprocess.run(
                command,
                env=variables,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"nothing was measured within {LIMIT:.0f} s"
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode or not lines:
        return lines[-1] if lines else f"the measurement ended with code {done.returncode}"
    ready, values = json.loads(lines[-1])
    # Python and torch have to start for every run.
    return dataclasses.replace(Measured(**values), start=values["start"] + ready - began)


def _measure_here(folder: str, seconds: float) -> None:
    """Measure the run whose settings are in the folder, and print the result."""
    ready = time.time()
    _, algorithm, spec = open_run(folder)
    trial = Trial(Job(algorithm, spec), Path(folder) / "trial")
    try:
        print(json.dumps([ready, dataclasses.asdict(trial.result(seconds))]))
    finally:
        trial.close()


def cache_file() -> Path:
    """Return where measurements are kept."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder, "hadamard", "throughput.json")


def _kind(run: Planned, threads: int) -> str:
    """Return a key for all runs that take alike."""
    settings = {k: v for k, v in flattened(to_dict(run.job.spec)).items() if k not in _ALIKE}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    machine = [platform.node(), platform.machine(), os.cpu_count(), gpu, threads]
    facts = [machine, torch.__version__, __version__, run.job.algorithm, run.suite, settings]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def throughput(kinds: dict[str, Planned], threads: int) -> dict[str, Measured | str]:
    """Return what each kind of run takes: measured earlier, or now."""
    file = cache_file()
    try:
        kept: dict[str, Any] = json.loads(file.read_text())
        known = {key: Measured(**values) for key, values in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # none, or of another version
        known = {}
    found: dict[str, Measured | str] = {}
    for number, (key, run) in enumerate(kinds.items(), start=1):
        if key in known:
            found[key] = known[key]
        elif envs.missing(run.suite):
            found[key] = f"{run.suite} is not installed: {envs.install_command(run.suite)}"
        else:
            print(
                f"measuring {run.job.algorithm} on {run.suite}, {run.arm.label} "
                f"({number} of {len(kinds)}) ...",
                file=sys.stderr,
                flush=True,
            )
            result = found[key] = measure(run.job, threads)
            if isinstance(result, Measured):
                known[key] = result
                file.parent.mkdir(parents=True, exist_ok=True)
                values = {name: dataclasses.asdict(one) for name, one in known.items()}
                write_atomically(file, json.dumps(values, indent=1))
    return found


def dry_run(asked: Asked, options: sweep.Options) -> str:
    """Return the grid, how much of it is done, and what the rest takes."""
    options.check()
    runs = plan(asked)
    lines: list[str] = []
    for experiment in asked.experiments:
        lines += _grid(experiment, asked)
    left = [run for run in runs if not run.finished]
    done = len(runs) - len(left)
    lines += [
        "",
        f"{_count(len(runs), 'different run')} in {asked.runs_folder}, {done} finished already",
    ]
    return "\n".join([*lines, *(_estimate(left, options) if left else [])])


def _grid(experiment: paper.Experiment, asked: Asked) -> list[str]:
    lines = [f"{experiment.name} ({experiment.place}) at scale {asked.scale}: {experiment.shows}"]
    for panel in experiment.at(asked.scale, asked.share, asked.until):
        tasks = paper.chosen(panel.tasks, asked.tasks or None)
        if not tasks:
            continue
        seeds = panel.seeds if asked.seeds is None else asked.seeds
        arms = panel.trained
        lines += [
            f"  {panel.algorithm}: {_count(len(arms), 'arm')} x {_count(len(tasks), 'task')} x "
            f"{_count(seeds, 'seed')} = {_count(len(arms) * len(tasks) * seeds, 'run')} of "
            f"{panel.steps:,} steps{f', until {panel.until:,} for now' if panel.until else ''}",
            f"    arms: {'; '.join(arm.label for arm in arms)}",
            f"    tasks: {', '.join(tasks)}",
        ]
    return lines


def _estimate(left: Sequence[Planned], options: sweep.Options) -> list[str]:
    at_a_time = options.jobs or 1
    if options.launcher == "local":
        at_a_time = min(len(left), len(sweep.slots([run.job for run in left], options)))
    kinds: dict[str, list[Planned]] = {}
    for run in left:
        kinds.setdefault(_kind(run, options.threads), []).append(run)
    taken = throughput({key: alike[0] for key, alike in kinds.items()}, options.threads)
    lines = ["what is left takes about, by throughput measured on this machine:"]
    seconds = disk = memory = gpu = 0.0
    unknown, busy = 0, False
    for key, alike in kinds.items():
        first, measured = alike[0], taken[key]
        name = f"{first.job.algorithm} on {first.suite}, {first.arm.label}"
        if isinstance(measured, str):
            unknown += len(alike)
            lines.append(f"  {name}: {_count(len(alike), 'run')}, unknown ({measured})")
            continue
        specs = [run.job.spec for run in alike]
        each = [measured.seconds(spec) for spec in specs]
        seconds += sum(each)
        sizes = [measured.bytes_on_disk(spec) for spec in specs]
        disk += sum(sizes)
        most = max(measured.bytes_in_memory(spec) for spec in specs)
        memory, gpu = max(memory, most), max(gpu, measured.gpu_memory)
        lines.append(
            f"  {name}: {_count(len(alike), 'run')} of {duration(sum(each) / len(each))} "
            f"({_rate(measured.steps_per_second)} steps/s), {_gb(most)} memory, "
            f"{_gb(max(sizes))} disk each"
        )
        busy |= measured.load > sweep.cores()
    if unknown < len(left):
        on_gpu = f" and {_gb(gpu * at_a_time)} on the GPU" if gpu else ""
        lines.append(
            f"in all about {duration(seconds)} of runs one after another, "
            f"{duration(seconds / at_a_time)} with {at_a_time} at a time; up to "
            f"{_gb(memory * at_a_time)} memory{on_gpu}, {_gb(disk)} disk"
        )
    if unknown:
        lines.append(f"unknown for {unknown} of {_count(len(left), 'run')}: not in the sum")
    if busy:
        lines.append("the machine was busy with other things during measurements: likely less")
    return [*lines, f"(measurements are kept in {cache_file()}; remove it to measure anew)"]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


if __name__ == "__main__":
    _measure_here(sys.argv[1], float(sys.argv[2]))
