"""How fast training is on this machine, and where the time goes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hadamard.core.config import overridden, to_dict
from hadamard.core.run import Run
from hadamard.train import default_spec
from hadamard.trainer import Trainer

PARTS = ("acting", "stepping", "learning", "greedy play", "health")
VARIANTS = {
    "ReLU": {"net.layer": "plain", "net.activation": "relu"},
    "tanh": {"net.layer": "plain", "net.activation": "tanh"},
    "tanh + HR": {"net.layer": "hadamard", "net.activation": "tanh"},
}


@dataclass(frozen=True)
class Bench:
    """Measure steps per second of ReLU, tanh and tanh + HR, taking turns in one process."""

    algorithms: tuple[str, ...] = ("pqn", "ppo", "dqn")
    """Which algorithms."""
    env: str = "minatar/breakout"
    """The environment."""
    seconds: float = 5.0
    """How long each variant is measured, in each of three turns."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


class Quiet:
    """A progress that shows nothing."""

    def __init__(self, title: str, total: int, done: int = 0) -> None: ...

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Timing:
    """Seconds spent by part, over some steps."""

    steps: int
    seconds: float
    parts: dict[str, float]

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


class Lane:
    """One variant's training, advanced a few seconds at a time."""

    def __init__(
        self,
        algorithm: str,
        env: str,
        variant: str,
        device: str,
        folder: Path,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        changes = {
            "device": device,
            "run_dir": str(folder),
            "train.tensorboard": False,
            "train.checkpoint_every": 0,
            "train.health_every": 0,
            # What is measured is learning: a long warm-up would only be waited for.
            **({"algo.learning_starts": 1_000} if algorithm == "dqn" else {}),
            **(more or {}),
        }
        spec = overridden(default_spec(algorithm, env), {**VARIANTS[variant], **changes})
        self.every = default_spec(algorithm, env).train.health_every
        self.trainer = Trainer(algorithm, spec)
        run = Run.create(folder, {"algorithm": algorithm, "spec": to_dict(spec)})
        self.trainer.open(run, Quiet, resume=False)
        self.warm_up()

    def advance(self) -> None:
        """Take one step everywhere."""
        self.trainer.start_step()
        self.trainer.finish_step()

    def warm_up(self) -> None:
        """Go on until an update has been made, and a graph captured where there is one."""
        while self.trainer.latest is None or not self.trainer.settled:
            self.advance()

    def measure(self, seconds: float) -> Timing:
        """Train for a while, whole rollouts only."""
        before, first = dict(self.trainer.clock.spent), self.trainer.step
        start = time.perf_counter()
        while time.perf_counter() - start < seconds or not self.trainer.settled:
            self.advance()
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        spent = self.trainer.clock.spent
        parts = {name: spent[name] - before.get(name, 0.0) for name in spent}
        return Timing(self.trainer.step - first, elapsed, parts)

    def diagnosis_seconds(self) -> float:
        """Return what one diagnosis costs."""
        trainer, count = self.trainer, self.trainer.recent.count
        obs = trainer.obs.repeat(-(-count // len(trainer.obs)), *[1] * (trainer.obs.dim() - 1))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            trainer.examine(obs[:count])
            times.append(time.perf_counter() - start)
        return sorted(times)[1]

    def close(self) -> None:
        """Free the environments."""
        self.trainer.mirrors.close()
        self.trainer.close()


def bench(asked: Bench) -> str:
    """Measure, and return the table."""
    if not asked.seconds > 0:
        raise ValueError(f"--seconds must be above 0, got {asked.seconds:g}")
    heading = f"{asked.env}, torch {torch.__version__}; share of the time by part, health at its "
    return table(
        heading + "default interval", {name: measure(name, asked) for name in asked.algorithms}
    )


def table(heading: str, measured: Mapping[str, Mapping[str, tuple[Timing, float]]]) -> str:
    """Lay out each algorithm's variants: their rates, beside ReLU's, and their shares."""
    columns = f"{'':<16}{'steps/s':>10}{'/ ReLU':>8}" + "".join(f"{part:>13}" for part in PARTS)
    lines = [heading, columns]
    for algorithm, variants in measured.items():
        baseline, _ = variants["ReLU"]
        for name, (timing, diagnosis) in variants.items():
            shares = {part: timing.parts.get(part, 0.0) / timing.seconds for part in PARTS}
            shares["health"] = diagnosis * timing.rate
            beside = timing.rate / baseline.rate
            row = f"{algorithm + ' ' + name:<16}{timing.rate:>10,.0f}{beside:>8.2f}"
            lines.append(row + "".join(f"{shares[part]:>13.1%}" for part in PARTS))
    return "\n".join(lines)


def measure(algorithm: str, asked: Bench) -> dict[str, tuple[Timing, float]]:
    """Return each variant's timing, and what its diagnoses cost per training step."""
    with tempfile.TemporaryDirectory() as folder:
        lanes = {
            variant: Lane(algorithm, asked.env, variant, asked.device, Path(folder) / str(i))
            for i, variant in enumerate(VARIANTS)
        }
        try:
            turns: dict[str, list[Timing]] = {variant: [] for variant in lanes}
            for _ in range(3):
                for variant, lane in lanes.items():
                    turns[variant].append(lane.measure(asked.seconds))
            # The middle one of three, against a machine that does other things at times.
            return {
                variant: (
                    sorted(turns[variant], key=lambda timing: timing.rate)[1],
                    lane.diagnosis_seconds() / lane.every,
                )
                for variant, lane in lanes.items()
            }
        finally:
            for lane in lanes.values():
                lane.close()
