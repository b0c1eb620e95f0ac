"""Words of the command line, and its answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hadamard.cli import main

SMALL = {
    "--env": "probe/both",
    "--net.width": 16,
    "--train.steps": 400,
    "--train.log-every": 50,
    "--train.health-every": 100,
    "--train.health-samples": 32,
    "--train.checkpoint-every": 100,
    "--train.greedy-envs": 0,
}

OWN = {
    "dqn": {"--algo.learning-starts": 40, "--algo.replay-capacity": 200},
    "mrq": {
        "--env": "probe/track",
        "--algo.random-steps": 200,
        "--algo.hidden-width": 8,
        "--algo.batch-size": 16,
        "--algo.target-period": 50,
        "--train.eval-workers": 0,
    },
    "ppo": {"--algo.num-envs": 2, "--algo.rollout-steps": 16},
    "pqn": {"--algo.num-envs": 4, "--algo.rollout-steps": 4, "--algo.minibatches": 2},
    "simbav2": {
        "--env": "probe/track",
        "--algo.learning-starts": 100,
        "--algo.updates-per-step": 1,
        "--algo.actor-width": 8,
        "--algo.batch-size": 16,
        "--algo.critic-blocks": 1,
    },
}


def flags(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (name, str(value))]


def small(
    algorithm: str, path: Path, settings: Mapping[str, Any] = {}, *, tensorboard: bool = False
) -> list[str]:
    options = {**SMALL, **OWN.get(algorithm, {}), "--run-dir": path, **settings}
    mirror = "--train.tensorboard" if tensorboard else "--train.no-tensorboard"
    return ["train", algorithm, *flags(options), mirror]


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str


Command = Callable[..., Result]


def checkpoint_names(path: Path) -> list[str]:
    return sorted(folder.name for folder in path.glob("checkpoints/step-*"))


def pack(*words: str | Path) -> int:
    return main(["pack", *map(str, words)])
