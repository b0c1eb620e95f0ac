"""Small runs on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hadamard.core.config import RunSpec, overridden
from hadamard.training.start import default_spec

DEVICE = torch.device("cuda")


def settings(algorithm: str, folder: Path, **changes: Any) -> RunSpec[Any]:
    small = {
        "device": str(DEVICE),
        "run_dir": str(folder),
        "net.layer": "hadamard",
        "net.activation": "tanh",
        "net.width": 32,
        "train.steps": 1_536,
        "train.log_every": 256,
        "train.health_every": 512,
        "train.health_samples": 128,
        "train.checkpoint_every": 512,
        "train.tensorboard": False,
        **(
            {"algo.learning_starts": 64, "algo.replay_storage": "device"}
            if algorithm == "dqn"
            else {"algo.num_envs": 8, "algo.rollout_steps": 16, "algo.minibatches": 4}
        ),
    }
    spec: RunSpec[Any] = overridden(default_spec(algorithm, "probe/image"), {**small, **changes})
    return spec
