"""Packed runs with known numbers, for the paper's experiments."""

from __future__ import annotations

import csv
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hadamard.core.config import flattened, to_dict
from hadamard.core.run import PROTOCOL
from hadamard.experiments.grid import Job
from hadamard.report.data.packed import SUFFIX, packed
from hadamard.report.statistics.normalize import ATARI, HUMANOID

PLACES = 200
HEALTH_ROWS = 10


def natural_scale(task: str) -> tuple[float, float]:
    """Return about a poor and a good score on a task."""
    suite, _, name = task.partition("/")
    if suite == "atari":
        return ATARI[name]
    return HUMANOID[name] if suite == "humanoid" else (0.0, 500.0)


class Fake:
    """A made-up run, whose numbers follow from its algorithm, arm, task and seed."""

    def __init__(self, job: Job, arm: str) -> None:
        self.job, self.arm = job, arm
        self.task, self.seed = job.spec.env, job.spec.seed
        key = f"{job.algorithm} {arm} {self.task} {self.seed}"
        rng = np.random.default_rng(zlib.crc32(key.encode()))
        low, high = natural_scale(self.task)
        center = {"ReLU": 1.0, "tanh": 0.8}.get(arm, 1.3)
        self.start = low + (high - low) * float(rng.uniform(0, 0.1))
        self.end = low + (high - low) * float(center + 0.2 * rng.standard_normal())
        self.late = self.end + 0.01 * (high - low) * float(rng.normal())
        self.dormant = float(rng.uniform(0.1, 0.9))
        self.rank = float(rng.integers(50, 500))
        self.live, self.dead = float(rng.uniform(1, 3)), float(rng.uniform(0, 2))
        self.speed = float(rng.uniform(900, 1100))

    @property
    def evaluated(self) -> bool:
        return bool(self.job.spec.train.eval_every)

    @property
    def final(self) -> float:
        """The score it is judged by."""
        return self.late if self.evaluated else self.end

    def steps(self) -> np.ndarray:
        train = self.job.spec.train
        if self.evaluated:
            return np.arange(0, train.steps + 1, train.eval_every)
        return np.arange(1, PLACES + 1) * train.steps // PLACES

    def curve(self) -> np.ndarray:
        return self.start + (self.end - self.start) * self.steps() / self.job.spec.train.steps

    def record(self) -> dict[str, Any]:
        spec = flattened(to_dict(self.job.spec))
        train = self.job.spec.train
        share = np.arange(1, HEALTH_ROWS + 1) / HEALTH_ROWS
        curve = self.curve().tolist()
        kinds: dict[str, Any] = {"training": {"values": [0.0] * PLACES, "final": -1.0}}
        if self.evaluated:
            kinds["evaluation"] = {
                "steps": self.steps().tolist(), "values": curve, "final": self.late,
            }  # fmt: skip
        elif train.greedy_envs:
            kinds["greedy"] = {"values": curve, "final": self.end}
        else:
            kinds["training"] = {"values": curve, "final": self.end}
        ones = np.ones(HEALTH_ROWS)
        measures = {
            "dormant_fraction": (self.dormant * share).tolist(),
            "effective_rank": (self.rank * ones).tolist(),
            "full_rank": (512 * ones).tolist(),
            "hidden_bias_share": (0.1 * ones).tolist(),
            "live_contribution": (self.live * ones).tolist(),
            "dormant_contribution": (self.dead * share).tolist(),
            "bias_contribution": (0.1 * ones).tolist(),
        }
        grid = np.linspace(-0.9, 0.9, 16)
        densities = [
            {
                "step": int(share_of_budget * train.steps),
                "layer": "z",
                "title": "z",
                "bounded": True,
                "neurons": list(range(16)),
                "dormant": [False] * 15 + [True],
                "low": (grid - 0.05).tolist(),
                "high": (grid + 0.05).tolist(),
                "peak": grid.tolist(),
                "height": [10.0] * 16,
                "levels": [[999] * 48] * 16,
            }
            for share_of_budget in (0.1, 1.0)
        ]
        return {
            "name": self.job.path.name,
            "algorithm": self.job.algorithm,
            "spec": {name: value for name, value in spec.items() if name != "run_dir"},
            "versions": {},
            "commit": "c0ffee",
            "protocol": PROTOCOL,
            "machine": "a machine",
            "summary": {"steps": train.steps},
            "reached": train.steps,
            "seconds": train.steps / self.speed,
            "steps_per_second": self.speed,
            "episodes": 1000,
            "lost_episodes": 0,
            "scores": kinds,
            "health": {
                "steps": (share * train.steps).astype(int).tolist(),
                "layers": [{"name": "z", "measures": measures}],
                "representation": "z",
                "threshold": [20.0] * HEALTH_ROWS,
                "delta": [0.01] * HEALTH_ROWS,
                "observations": [2048] * HEALTH_ROWS,
            },
            "densities": densities,
            "troubles": [],
        }


def write(folder: Path, name: str, record: dict[str, Any]) -> None:
    (folder / f"{name}{SUFFIX}").write_bytes(packed(record))


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))
