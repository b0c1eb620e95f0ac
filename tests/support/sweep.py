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
