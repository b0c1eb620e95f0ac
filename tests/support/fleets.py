"""Small runs that are trained as one computation, and the same runs alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hadamard.core import checkpoint
from hadamard.core.config import RunSpec, overridden
from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training import start
from hadamard.training.fleet.fleet import Fleet
from tests.support.resume import STREAMS, assert_same

SHARED: dict[str, Any] = {
    "device": "cpu",
    "net.layer": "hadamard",
    "net.activation": "tanh",
    "net.width": 8,
    "train.fleet": "on",
    "train.compile": "off",
    "train.tensorboard": False,
    "train.health_samples": 40,
    "train.greedy_envs": 2,
}
# Every rhythm is out of step with every other, and with the blocks of the computation.
OWN: dict[str, dict[str, Any]] = {
    "pqn": {
        "algo.num_envs": 4,
        "algo.rollout_steps": 8,
        "algo.minibatches": 4,
        "algo.epsilon_fraction": 0.5,
        "train.steps": 320,
        "train.log_every": 50,
        "train.health_every": 130,
        "train.checkpoint_every": 110,
    },
    "ppo": {
        "algo.num_envs": 4,
        "algo.rollout_steps": 16,
        "algo.epochs": 2,
        "train.steps": 384,
        "train.log_every": 70,
        "train.health_every": 130,
        "train.checkpoint_every": 110,
    },
    "dqn": {
        "algo.num_envs": 2,
        "algo.update_period": 12,
        "algo.learning_starts": 200,
        "algo.batch_size": 8,
        "algo.replay_capacity": 500,
        "algo.epsilon_steps": 600,
        "algo.target_period": 150,
        "train.steps": 800,
        "train.log_every": 90,
        "train.health_every": 250,
        "train.checkpoint_every": 210,
    },
    "simbav2": {
        "algo.num_envs": 2,
        "algo.actor_width": 8,
        "algo.critic_blocks": 1,
        "algo.bins": 11,
        "algo.batch_size": 8,
        "algo.updates_per_step": 1,
        "algo.learning_starts": 130,
        "algo.learning_rate": 1e-3,
        "algo.replay_capacity": 150,
        "train.steps": 210,
        "train.log_every": 50,
        "train.health_every": 110,
        "train.checkpoint_every": 60,
    },
}
ALGORITHMS = "dqn", "ppo", "pqn"
"""Those that learn from games on the device."""
BLOCK = 100
"""Steps of a block of runs with a replay: fewer than usual, so that short runs have several."""
REDO = {"remedy": "redo", "redo.period": 5, "redo.tau": 0.9}


def spec_of(
    algorithm: str,
    folder: Path,
    seed: int = 0,
    changes: Mapping[str, Any] = {},
    env: str = "minatar/breakout",
) -> RunSpec[Any]:
    """A run's settings."""
    settings = {**SHARED, **OWN[algorithm], "seed": seed, "run_dir": str(folder), **changes}
    spec: RunSpec[Any] = overridden(start.default_spec(algorithm, env), settings)
    return spec


def train(algorithm: str, specs: Sequence[RunSpec[Any]]) -> list[dict[str, Any]]:
    return start.train_together(algorithm, specs, Quiet)


def resume(*paths: Path) -> list[dict[str, Any]]:
    return start.resume_together([str(path) for path in paths], Quiet)


def rows_of(path: Path) -> dict[str, list[str]]:
    """The lines of all streams that do not depend on the time."""
    files = {stream: path / f"{stream}.jsonl" for stream in STREAMS}
    return {name: file.read_text().splitlines() for name, file in files.items() if file.exists()}


def assert_same_rows(ours: Path, theirs: Path) -> None:
    expected = rows_of(theirs)
    rows = rows_of(ours)
    assert rows.keys() == expected.keys()
    for stream, lines in expected.items():
        assert rows[stream] == lines, stream


def assert_same_run(ours: Path, theirs: Path) -> None:
    """The same rows, the same summary, and the same state at the end."""
    assert_same_rows(ours, theirs)
    ends = [Run.open(path).done for path in (ours, theirs)]
    for end in ends:
        assert end is not None
        del end["seconds"]
    assert ends[0] == ends[1]
    states = [checkpoint.read(checkpoint.newest(path / "checkpoints")) for path in (ours, theirs)]
    assert states[0][0] == states[1][0]
    assert_same(*(state for _, state in states))


def counted(path: Path) -> dict[str, int]:
    """How many rows each stream has."""
    return {stream: len(lines) for stream, lines in rows_of(path).items()}


def scores(path: Path) -> list[float]:
    return [json.loads(line)["score"] for line in rows_of(path)["episodes"]]


def stopping_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process send itself SIGTERM when the first run of a fleet has reached a step."""
    loop = Fleet.loop

    def signalling(self: Fleet, stop_requested: Callable[[], bool]) -> Iterator[None]:
        for _ in loop(self, stop_requested):
            if self.trainers[0].step >= step:
                os.kill(os.getpid(), signal.SIGTERM)
            yield

    monkeypatch.setattr(Fleet, "loop", signalling)


def sizes_of_fleets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which every new fleet adds its number of runs."""
    sizes: list[int] = []
    create = Fleet.__init__

    def creating(self: Fleet, trainers: Any, *others: Any) -> None:
        sizes.append(len(trainers))
        create(self, trainers, *others)

    monkeypatch.setattr(Fleet, "__init__", creating)
    return sizes
