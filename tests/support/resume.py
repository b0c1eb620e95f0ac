"""Runs that are killed and resumed, and compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hadamard import cli, envs
from hadamard.core import checkpoint, discover
from hadamard.core.run import Run
from hadamard.learning.replay import Replay
from hadamard.training import start

ALGORITHMS = discover.names("hadamard.algos")
STREAMS = ("episodes", "train", "eval", "health", "kde")
STEPS = 700

# Every rhythm is out of step with every other.
SHARED = {
    "--net.width": 16,
    "--net.layer": "hadamard",
    "--train.steps": STEPS,
    "--train.log-every": 30,
    "--train.health-every": 130,
    "--train.health-samples": 64,
    "--train.measures": "all",
    "--train.checkpoint-every": 110,
}

OWN: dict[str, dict[str, Any]] = {
    "dqn": {
        "--algo.learning-starts": 100,
        "--algo.batch-size": 8,
        "--algo.replay-capacity": 150,
        "--algo.epsilon-steps": 500,
        "--algo.target-period": 70,
        "--remedy": "redo",
        "--redo.period": 20,
        "--redo.tau": 0.3,
    },
    "ppo": {
        "--algo.num-envs": 4,
        "--algo.rollout-steps": 16,
        "--algo.epochs": 2,
        "--train.env-groups": 2,
    },
    "pqn": {
        "--algo.num-envs": 4,
        "--algo.rollout-steps": 8,
        "--algo.minibatches": 4,
        "--train.greedy-envs": 2,
    },
    "simbav2": {
        "--algo.num-envs": 4,
        "--algo.learning-starts": 100,
        "--algo.updates-per-step": 1,
        "--algo.batch-size": 16,
        "--algo.replay-capacity": 160,
        "--algo.actor-width": 8,
        "--algo.critic-blocks": 1,
        "--train.eval-every": 170,
        "--train.eval-episodes": 4,
    },
    "mrq": {
        "--algo.random-steps": 100,
        "--algo.batch-size": 8,
        "--algo.target-period": 35,
        "--algo.encoder-horizon": 3,
        "--algo.replay-capacity": 150,
        "--algo.hidden-width": 16,
        "--train.eval-every": 170,
        "--train.eval-episodes": 4,
        "--train.eval-workers": 0,
    },
}


def env_of(algorithm: str) -> str:
    continuous = discover.find("hadamard.algos", algorithm, "").ACTIONS == "continuous"
    return "probe/track" if continuous else "minatar/breakout"


def words(algorithm: str, path: Path, env: str | None = None, **more: Any) -> list[str]:
    env = env or env_of(algorithm)
    options = {"--env": env, "--run-dir": path, **SHARED, **OWN.get(algorithm, {}), **more}
    flags = [word for name, value in options.items() for word in (name, str(value))]
    return ["train", algorithm, *flags, "--train.no-tensorboard"]


# Runs the command line and sends itself a signal: after a step, or inside the n-th save.
DRIVER = """
import os, sys
from hadamard import cli
from hadamard.training import start
from hadamard.core import files

number, where, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
step, sync, saves = start.Trainer.one_step, files.sync_folder, []

def stepping(self, *stopping):
    before = self.step
    yield from step(self, *stopping)
    if where == "step" and before < count <= self.step:
        os.kill(os.getpid(), number)

def syncing(path):
    sync(path)
    if path.name.startswith(".step-"):
        saves.append(path)
        if where == "save" and len(saves) == count:
            os.kill(os.getpid(), number)

start.Trainer.one_step, files.sync_folder = stepping, syncing
sys.exit(cli.main(sys.argv[4:]))
"""


def killed(number: int, where: str, count: int, command: list[str]) -> int:
    arguments = [str(int(number)), where, str(count), *command]
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode


def resumed(path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> int:
    """Resume in this process, which sends itself SIGTERM after a step."""
    one_step = start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        before = self.step
        yield from one_step(self, *stopping)
        if stop_at is not None and before < stop_at <= self.step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", stepping)
        return cli.main(["train", "--resume", str(path)])


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}/{i}")
    elif isinstance(ours, Tensor):
        assert ours.dtype == theirs.dtype, where
        assert torch.equal(ours, theirs), where
    elif isinstance(ours, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, where)
    else:
        assert ours == theirs, where


def frames(path: Path, state: Any, env: envs.Envs) -> Tensor:
    """The whole ring of frames that a checkpoint's replay holds."""
    slots = state["usable"].numel()
    replay = Replay(env.spec, len(state["pushed"]), slots, torch.device("cpu"))
    replay.load_increment(path / "checkpoints" / "agent.replay", state)
    assert min(state["pushed"]) > slots  # it has come round
    return replay.frames


def assert_same_results(ours: Path, theirs: Path) -> None:
    for stream in STREAMS:
        files = [path / f"{stream}.jsonl" for path in (ours, theirs)]
        assert files[0].exists() == files[1].exists(), stream
        if files[0].exists():
            assert files[0].read_text().splitlines() == files[1].read_text().splitlines(), stream
    summaries = [Run.open(path).done for path in (ours, theirs)]
    for summary in summaries:
        assert summary is not None
        del summary["seconds"]
    assert summaries[0] == summaries[1]


def assert_same_run(ours: Path, theirs: Path) -> None:
    assert_same_results(ours, theirs)
    states = []
    for path in (ours, theirs):
        step, state = checkpoint.read(checkpoint.newest(path / "checkpoints"))
        if "agent.replay" in state:
            env = envs.make(Run.open(path).config["spec"]["env"], 0, 1)
            state["frames"] = frames(path, state["agent.replay"], env)
            env.close()
            del state["agent.replay"]["chunks"]  # how the frames are parted among files
        states.append({"step": step, **state})
    assert_same(states[0], states[1])


def until(path: Path, steps: int) -> int:
    return cli.main(["train", "--resume", str(path), "--until", str(steps)])
