"""Small finished runs with kept checkpoints. Only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadamard.cli import main
from tests.support.commands import flags

STEPS = 640
VARIANTS = {"relu": ("plain", "relu"), "hr": ("hadamard", "tanh")}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PQN on Breakout with both variants, on another game with ReLU; two seeds each."""
    folder = tmp_path_factory.mktemp("relearning")
    for task in ("breakout", "space_invaders"):
        for name, (layer, activation) in list(VARIANTS.items())[: 2 if task == "breakout" else 1]:
            for seed in range(2):
                options = {
                    "--env": f"minatar/{task}",
                    "--seed": seed,
                    "--net.layer": layer,
                    "--net.activation": activation,
                    "--net.width": 16,
                    "--algo.num-envs": 8,
                    "--algo.rollout-steps": 8,
                    "--algo.minibatches": 4,
                    "--train.greedy-envs": 0,
                    "--train.steps": STEPS,
                    "--train.log-every": 320,
                    "--train.health-every": 320,
                    "--train.health-samples": 64,
                    "--train.checkpoint-every": 128,
                    "--train.keep-every": 256,
                    "--train.threads": 1,
                    "--run-dir": folder / f"{task}-{name}-{seed}",
                }
                assert main(["train", "pqn", *flags(options), "--train.no-tensorboard"]) == 0
    return folder
