"""Small jobs for the sweeps' tests, and readers of their run folders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.status import run_progress
from hadamard.training.start import default_spec
from tests.support.paths import ROOT

SCRIPTED = ROOT / "tests" / "support" / "scripted"
"""The folder that makes runs follow scripts, where it is on PYTHONPATH."""
STREAMS = ("episodes", "train", "eval", "health", "kde")
STEPS = 700

# A row every 50 steps, a checkpoint every 110.
SMALL = {
    "device": "cpu",
    "net.width": 16,
    "train.steps": STEPS,
    "train.log_every": 50,
    "train.health_every": 0,
    "train.checkpoint_every": 110,
    "train.tensorboard": False,
    "train.threads": 1,
    "algo.learning_starts": 100,
    "algo.batch_size": 8,
    "algo.replay_capacity": 150,
}
LONG = 2_000_000

FLAGS = [
    word
    for name, value in SMALL.items()
    if name != "train.tensorboard"
    for word in (f"--{name.replace('_', '-')}", str(value))
] + ["--train.no-tensorboard"]


def small_job(folder: Path, name: str = "run", **changes: Any) -> Job:
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    spec = overridden(default_spec("dqn", "probe/both"), {**SMALL, **settings})
    return Job("dqn", replace(spec, run_dir=str(folder / name)))


# A block of 16 steps is 4 steps of 4 environments; 320 steps are 20 blocks.
STACKED = {
    "device": "cpu",
    "net.width": 16,
    "train.fleet": "on",
    "train.compile": "off",
    "train.steps": 320,
    "train.log_every": 16,
    "train.health_every": 128,
    "train.health_samples": 32,
    "train.checkpoint_every": 48,
    "train.greedy_envs": 2,
    "train.tensorboard": False,
    "train.threads": 1,
    "algo.num_envs": 4,
    "algo.rollout_steps": 4,
    "algo.minibatches": 2,
}
"""Settings of small runs in the form of a fleet."""


def stacked_job(folder: Path, seed: int, name: str = "", **changes: Any) -> Job:
    """Return a small run in the form of a fleet."""
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    path = folder / (name or f"seed{seed}")
    spec = overridden(default_spec("pqn", "minatar/breakout"), {**STACKED, **settings})
    return Job("pqn", replace(spec, seed=seed, run_dir=str(path)))


def stacked_words() -> list[str]:
    """Return the words of the settings of small runs in the form of a fleet."""
    plain = {name: value for name, value in STACKED.items() if name != "train.tensorboard"}
    words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in plain.items()]
    return [*(word for pair in words for word in pair), "--train.no-tensorboard"]


def script(job: Job, step: int, action: str) -> None:
    """Make a run take an action of `scripted.sitecustomize` when it begins a step."""
    job.path.parent.mkdir(parents=True, exist_ok=True)
    file = job.path.with_name(f"{job.name}.script")
    part = job.path.with_name(f"{job.name}.part")
    part.write_text(json.dumps({"step": step, "action": action}))
    part.replace(file)


def held_process(job: Job) -> int:
    """Wait until a run is held by its script, and return its process."""
    file = job.path.with_name(f"{job.name}.held")
    wait_until(file.exists)
    return int(file.read_text())


def release(job: Job) -> None:
    """End a run's script."""
    job.path.with_name(f"{job.name}.script").unlink()


def wait_until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    """Wait for something that happens sooner or later; the limit only ends a broken test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} seconds"
        time.sleep(0.02)


def current_step(job: Job) -> int:
    return run_progress(job.path).step


def has_checkpoint(job: Job) -> bool:
    return any(job.path.glob("checkpoints/step-*"))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def stream_contents(path: Path) -> dict[str, str]:
    files = {name: path / f"{name}.jsonl" for name in STREAMS}
    return {name: file.read_text() for name, file in files.items() if file.exists()}


def newest_checkpoint(job: Job) -> int:
    """Return the step of a run's newest checkpoint."""
    return int(max(job.path.glob("checkpoints/step-*")).name.removeprefix("step-"))


def timing_rows(job: Job, last_step: int) -> list[dict[str, Any]]:
    """Return the timing rows up to a step; a run that started over has other times."""
    return [row for row in Run(job.path).rows("timing") if row["step"] <= last_step]


def attempts(job: Job) -> int:
    return job.log.read_text().count("=== attempt")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sweep_words(folder: Path, *more: str, steps: int = LONG) -> list[str]:
    grid_words = ["dqn", "--envs", "probe/both", "--variants", "relu,tanh", "--seeds", "1"]
    flags = [*FLAGS, "--train.steps", str(steps)]
    return [*grid_words, "--folder", str(folder), *more, "--", *flags]


def jobs_in(folder: Path) -> list[Job]:
    names = ("dqn_probe-both_relu_seed0", "dqn_probe-both_tanh_seed0")
    return [small_job(folder, name) for name in names]
