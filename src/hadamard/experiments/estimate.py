"""Estimate the time, memory and disk that runs take, from short measurements on this machine.

Runs that differ only in settings that hardly affect speed, such as the seed, are of one kind. One
run of each kind is trained for a few seconds in a separate process. The results are cached.
"""

from __future__ import annotations

import dataclasses
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
from hadamard.core.cores import usable_cores
from hadamard.core.files import RunError, read_json, write_atomically
from hadamard.core.machine import choose_device
from hadamard.core.run import Run
from hadamard.core.typed import checked, fields
from hadamard.experiments.bench import TimedTraining, Timing
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import fleets
from hadamard.experiments.sweep.options import Options
from hadamard.experiments.sweep.queue import groups, slots, thread_variables
from hadamard.text import counted, data_size, duration
from hadamard.training import health_stream
from hadamard.training.start import open_run

MEASURED_SECONDS = 2.0
"""How long a kind of run is trained for its measurement."""
TIME_LIMIT = 300.0
"""Seconds after which a measurement is stopped."""
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


@dataclass(frozen=True)
class Cost:
    """The measured cost of one kind of run on this machine."""

    steps_per_second: float
    learning_seconds: float
    """Seconds of learning per step; there is no learning before the warm-up ends."""
    start_seconds: float
    """Seconds from the start of the process to the first step."""
    diagnosis_seconds: float
    evaluation_seconds: float
    saving_seconds: float
    memory_bytes: int
    """Memory of the process, without the replay."""
    gpu_memory_bytes: int
    frame_bytes: int
    """Size of a frame in the replay."""
    checkpoint_bytes: int
    """Size of a checkpoint without the replay."""
    episode_bytes_per_step: float
    """Size of the rows of finished episodes, per step."""
    log_bytes: float
    """Size of the rows of one log interval."""
    diagnosis_bytes: int
    density_bytes: int
    """Size of the densities written after a checkpoint."""
    load: float
    """The machine's load average after the measurement."""
    date: str

    def seconds(self, spec: RunSpec[Any]) -> float:
        """Return the time of a run."""
        train, steps = spec.train, spec.train.horizon
        warm_up = sum(getattr(spec.algo, name, 0) for name in ("learning_starts", "random_steps"))
        total = self.start_seconds + steps / self.steps_per_second
        total -= min(warm_up, steps) * self.learning_seconds
        total += _times(steps, train.health_every) * self.diagnosis_seconds
        total += _times(steps, train.checkpoint_every) * self.saving_seconds
        return total + (1 + _times(steps, train.eval_every)) * self.evaluation_seconds

    def bytes_in_memory(self, spec: RunSpec[Any]) -> float:
        """Return the memory of a run at its end."""
        return self.memory_bytes + self._replay_bytes(spec)

    def bytes_on_disk(self, spec: RunSpec[Any]) -> float:
        """Return the size of a run folder: two checkpoints with one replay, and the streams."""
        train, steps = spec.train, spec.train.horizon
        total: float = 2 * self.checkpoint_bytes + self._replay_bytes(spec)
        total += self.episode_bytes_per_step * steps
        total += _times(steps, train.log_every) * self.log_bytes
        total += _times(steps, train.health_every) * self.diagnosis_bytes
        return total + _times(steps, train.checkpoint_every) * self.density_bytes

    def _replay_bytes(self, spec: RunSpec[Any]) -> int:
        return self.frame_bytes * min(getattr(spec.algo, "replay_capacity", 0), spec.train.horizon)


def _times(steps: int, every: int) -> int:
    return steps // every if every else 0


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


def measure(job: Job, threads: int = 1) -> Cost | str:
    """Measure a run in a separate process; returns its cost, or the reason why there is none."""
    environment = {**os.environ, **thread_variables(threads)}
    with tempfile.TemporaryDirectory() as folder:
        Run.create(folder, {"algorithm": job.algorithm, "spec": to_dict(job.spec)}).close()
        module = "hadamard.experiments.estimate"
        start = time.time()  # wall-clock time, which both processes can read
        try:
            process = subprocess.run(
                [sys.executable, "-m", module, folder, str(MEASURED_SECONDS)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"nothing was measured within {TIME_LIMIT:.0f} s"
    output = process.stderr if process.returncode else process.stdout
    lines = output.strip().splitlines()
    if process.returncode or not lines:
        return lines[-1] if lines else f"the measurement ended with code {process.returncode}"
    imported, values = json.loads(lines[-1])
    cost = Cost(**values)
    # Every run also has to start Python and import torch.
    return dataclasses.replace(cost, start_seconds=cost.start_seconds + imported - start)


def _measure_in_this_process(folder: str, seconds: float) -> None:
    """Measure the run whose settings are in the folder, and print the result as JSON."""
    imported = time.time()
    _, algorithm, spec = open_run(folder)
    cost = _measure(algorithm, spec, Path(folder) / "trial", seconds)
    print(json.dumps([imported, dataclasses.asdict(cost)]))


def _measure(algorithm: str, spec: RunSpec[Any], folder: Path, seconds: float) -> Cost:
    """Train for some seconds, then diagnose, save, and measure the files."""
    training = TimedTraining(algorithm, _trial(spec), folder)
    try:
        trainer = training.trainer
        timing = training.measure(seconds)
        trainer.run.flush()
        streams = {name: _stream_size(folder, name) for name in ("episodes", "eval")}
        log_rows = [_row_size(folder, name) for name in ("train", "timing")]
        diagnosis = health_stream.examine(
            trainer.agent.network,
            training.observations(spec.train.health_samples),
            spec.train,
            spec.seed,
            trainer.step,
        )
        before, start = _folder_size(folder), time.perf_counter()
        trainer.save()
        saving, written = time.perf_counter() - start, _folder_size(folder) - before
        env, cuda = trainer.envs.spec, trainer.device.type == "cuda"
        frame = torch.empty(env.obs_shape, dtype=env.obs_dtype, device="meta").nbytes // env.frames
        replay = frame * trainer.step if hasattr(spec.algo, "replay_capacity") else 0
        return Cost(
            steps_per_second=timing.rate,
            learning_seconds=timing.parts["learning"] / max(1, timing.steps),
            start_seconds=training.setup_seconds,
            diagnosis_seconds=training.diagnosis_seconds(),
            evaluation_seconds=_evaluation_seconds(spec, timing, env.max_steps or 1_000),
            saving_seconds=saving,
            memory_bytes=max(0, _peak_memory() - replay),
            gpu_memory_bytes=torch.cuda.max_memory_reserved(trainer.device) if cuda else 0,
            frame_bytes=frame,
            checkpoint_bytes=max(0, written - replay),
            episode_bytes_per_step=sum(streams.values()) / max(1, trainer.step),
            log_bytes=sum(log_rows),
            diagnosis_bytes=_json_size(health_stream.health_row(diagnosis)),
            density_bytes=_json_size(health_stream.kde_row(diagnosis)),
            load=os.getloadavg()[0],
            date=time.strftime("%Y-%m-%d"),
        )
    finally:
        training.close()


def _trial(spec: RunSpec[Any]) -> RunSpec[Any]:
    """Return settings with the same speed and a shorter warm-up."""
    changes: dict[str, Any] = {
        "train.steps": min(spec.train.steps, 20_000),  # hence a small replay
        "train.until": 0,
        "train.eval_every": 0,
        "train.log_every": 100 * spec.algo.num_envs,  # rarely, but at least once in a measurement
    }
    if choose_device(spec.device).type == "cpu" and hasattr(spec.algo, "minibatches"):
        # Shorter rollouts with minibatches of the same size: the same updates per step, sooner.
        rollout, minibatches = spec.algo.rollout_steps, spec.algo.minibatches
        divisor = math.gcd(rollout, minibatches, 8)
        changes["algo.rollout_steps"] = rollout // divisor
        changes["algo.minibatches"] = minibatches // divisor
    trial: RunSpec[Any] = overridden(spec, changes)
    return trial


def _evaluation_seconds(spec: RunSpec[Any], timing: Timing, episode_steps: int) -> float:
    """Estimate the time of an evaluation; its episodes are played in parallel."""
    train = spec.train
    if not train.eval_every:
        return 0.0
    workers = train.eval_workers
    if workers is None:
        workers = envs.automatic_workers(spec.env, train.eval_episodes)
    stepping = timing.parts["stepping"] * train.eval_episodes / max(1, workers)
    return episode_steps * (timing.parts["acting"] + stepping) / max(1, timing.steps)


def _folder_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _stream_size(folder: Path, name: str) -> int:
    path = folder / f"{name}.jsonl"
    return path.stat().st_size if path.exists() else 0


def _row_size(folder: Path, name: str) -> float:
    """Return the mean size of a stream's rows."""
    path = folder / f"{name}.jsonl"
    rows = path.read_bytes().count(b"\n") if path.exists() else 0
    return path.stat().st_size / rows if rows else 0.0


def _json_size(row: dict[str, Any]) -> int:
    return len(json.dumps(row)) + 1


def _peak_memory() -> int:
    """Return this process's peak memory in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1_024


def _short_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


if __name__ == "__main__":
    _measure_in_this_process(sys.argv[1], float(sys.argv[2]))
