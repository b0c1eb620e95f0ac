"""Measure the speed of training on this machine, and the share of each part in the time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from hadamard import envs
from hadamard.core import discover
from hadamard.core.config import RunSpec, overridden, to_dict
from hadamard.core.machine import choose_device
from hadamard.core.run import Run
from hadamard.training import fleet
from hadamard.training.progress import Quiet
from hadamard.training.setup import ALGORITHMS, Setup
from hadamard.training.start import default_spec
from hadamard.training.trainer import Trainer

PARTS = ("acting", "stepping", "learning", "greedy play", "health")
"""The parts of training whose shares the table shows."""
VARIANTS = {
    "ReLU": {"net.layer": "plain", "net.activation": "relu"},
    "tanh": {"net.layer": "plain", "net.activation": "tanh"},
    "tanh + HR": {"net.layer": "hadamard", "net.activation": "tanh"},
}
"""The settings of each variant."""


@dataclass(frozen=True)
class Bench:
    """Measure the training speed of ReLU, tanh and tanh + HR, which take turns in one process.

    The table also shows which share of the time goes to acting, stepping the environments,
    learning, greedy play and diagnoses of the network's health.
    """

    algorithms: tuple[str, ...] = ("pqn", "ppo", "dqn")
    """The algorithms to measure, one after another."""
    env: str = "minatar/breakout"
    """The environment to train in."""
    emulators: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the emulators of Atari play; auto measures both, if there is a GPU."""
    seconds: float = 5.0
    """How many seconds each variant trains in each of its three turns."""
    device: str = "auto"
    """The device to train on: cpu, cuda or cuda:N; auto takes a GPU if there is one."""
    fleet: bool = False
    """Measure fleets instead: many runs trained as one computation."""
    runs: tuple[int, ...] = (1, 8, 32, 128)
    """How many runs the fleets have."""


@dataclass(frozen=True)
class Timing:
    """Steps of a measurement and their time in seconds, total and by part."""

    steps: int
    seconds: float
    parts: dict[str, float]

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def short_warm_up(algorithm: str, spec: RunSpec[Any]) -> dict[str, int]:
    """Return settings that shorten an algorithm's warm-up: its module's ``SHORT_WARM_UP``.

    Only algorithms with a long warm-up have them.
    """
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    limits: dict[str, int] = getattr(module, "SHORT_WARM_UP", {})
    return {f"algo.{name}": min(getattr(spec.algo, name), limit) for name, limit in limits.items()}


class TimedTraining:
    """Training that runs a few seconds at a time, timed.

    It neither diagnoses nor saves by itself. Construction includes the warm-up: the first update,
    compilation and CUDA graph capture.
    """

    def __init__(self, algorithm: str, spec: RunSpec[Any], folder: Path) -> None:
        changes = {
            "run_dir": str(folder),
            "train.tensorboard": False,
            "train.wandb": None,
            "train.trackio": None,
            "train.mlflow": None,
            "train.checkpoint_every": 0,
            "train.keep_every": 0,
            "train.health_every": 0,
            **short_warm_up(algorithm, spec),
        }
        start = time.perf_counter()
        timed = overridden(spec, changes)
        with ExitStack() as stack:
            self.setup = stack.enter_context(closing(Setup(algorithm, timed)))
            run = Run.create(folder, {"algorithm": algorithm, "spec": to_dict(timed)})
            stack.callback(run.close)
            self.trainer = stack.enter_context(
                closing(Trainer(self.setup, run, Quiet, resume=False))
            )
            stack.callback(self.trainer.trackers.close)
            self.setup_seconds = time.perf_counter() - start
            while self.trainer.latest is None or not self.trainer.settled:
                self.trainer.advance()
            self._resources = stack.pop_all()

    def measure(self, seconds: float) -> Timing:
        """Train for at least this long, up to the end of a rollout."""
        clock = self.trainer.clock.seconds_by_part
        before, first_step = dict(clock), self.trainer.step
        start = time.perf_counter()
        self.trainer.advance()
        while time.perf_counter() - start < seconds or not self.trainer.settled:
            self.trainer.advance()
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        parts = {name: clock[name] - before.get(name, 0.0) for name in clock}
        return Timing(self.trainer.step - first_step, elapsed, parts)

    def diagnosis_seconds(self) -> float:
        """Return the time of one diagnosis, the median of three."""
        observations = self.observations(self.trainer.recent.count)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            self.trainer.diagnose(observations)
            times.append(time.perf_counter() - start)
        return sorted(times)[1]

    def observations(self, count: int) -> torch.Tensor:
        """Return the environments' present observations, repeated up to this count."""
        obs = self.trainer.pipeline.obs
        return obs.repeat(-(-count // len(obs)), *[1] * (obs.dim() - 1))[:count]

    def close(self) -> None:
        """Close the environments and the run folder."""
        self._resources.close()


def variant_training(
    algorithm: str,
    env: str,
    variant: str,
    device: str,
    folder: Path,
    changes: Mapping[str, Any] | None = None,
) -> TimedTraining:
    """Return the training of one of `VARIANTS` with an algorithm's usual settings.

    Args:
        algorithm: The algorithm's name.
        env: The environment.
        variant: A name out of `VARIANTS`.
        device: The device to train on.
        folder: Its run folder.
        changes: Further settings, by dotted names such as ``train.compile``.
    """
    settings = {**VARIANTS[variant], "device": device, **(changes or {})}
    return TimedTraining(algorithm, overridden(default_spec(algorithm, env), settings), folder)


def check(request: Bench) -> None:
    """Refuse measurements that are not possible."""
    if not request.seconds > 0:
        raise ValueError(f"--seconds must be above 0, got {request.seconds:g}")
    if wrong := [runs for runs in request.runs if runs < 1]:
        raise ValueError(f"--runs must be numbers of at least 1, got {wrong[0]}")


def bench(request: Bench) -> str:
    """Measure, and return the table."""
    places = places_of_emulators(request)
    if places == ["gpu"]:
        return one_run_fleets(request)
    heading = (
        f"{request.env}, torch {torch.__version__}; share of the time by part, health at its "
        "default interval"
    )
    measured = table(heading, {name: measure(name, request) for name in request.algorithms})
    return f"{measured}\n\n{one_run_fleets(request)}" if "gpu" in places else measured


def places_of_emulators(request: Bench) -> list[str]:
    """Return where emulators are measured: cpu, gpu or both; cpu where there are none."""
    choice = request.emulators
    if not envs.has_emulators(request.env):
        if choice != "auto":
            raise ValueError(f"--emulators {choice} is for Atari, and not for {request.env}")
        return ["cpu"]
    if choice == "cpu":
        return ["cpu"]
    trouble = envs.emulator_trouble(request.env, choose_device(request.device))
    if trouble is None:
        return ["gpu"] if choice == "gpu" else ["cpu", "gpu"]
    if choice == "gpu":
        raise ValueError(f"--emulators gpu is not possible: {trouble}")
    return ["cpu"]


def one_run_fleets(request: Bench) -> str:
    """Return the table of single runs with the emulators on the GPU, which are fleets of one run.

    Algorithms that learn from a replay are left out: their games are few.
    """
    from hadamard.experiments import fleet_bench

    gpu = overridden(default_spec(request.algorithms[0], request.env), {"train.emulators": "gpu"})
    suited = tuple(name for name in request.algorithms if fleet.is_emulated(name, gpu))
    if not suited:
        raise ValueError("--emulators gpu measures algorithms without a replay: pqn or ppo")
    return fleet_bench.bench(
        replace(request, algorithms=suited, emulators="gpu", fleet=True, runs=(1,))
    )


def table(heading: str, measured: Mapping[str, Mapping[str, tuple[Timing, float]]]) -> str:
    """Return the measurements as a table, with a row for each algorithm and variant.

    Args:
        heading: The first line.
        measured: By algorithm, what `measure` returns.
    """
    columns = f"{'':<16}{'steps/s':>10}{'/ ReLU':>8}" + "".join(f"{part:>13}" for part in PARTS)
    lines = [heading, columns]
    for algorithm, variants in measured.items():
        baseline, _ = variants["ReLU"]
        for variant, (timing, diagnosis) in variants.items():
            shares = {part: timing.parts.get(part, 0.0) / timing.seconds for part in PARTS}
            shares["health"] = diagnosis * timing.rate
            ratio = timing.rate / baseline.rate
            row = f"{algorithm + ' ' + variant:<16}{timing.rate:>10,.0f}{ratio:>8.2f}"
            lines.append(row + "".join(f"{shares[part]:>13.1%}" for part in PARTS))
    return "\n".join(lines)


def measure(algorithm: str, request: Bench) -> dict[str, tuple[Timing, float]]:
    """Return for each variant its timing, and the seconds of diagnosis per training step."""
    every = default_spec(algorithm, request.env).train.health_every
    with tempfile.TemporaryDirectory() as folder:
        trainings = {
            variant: variant_training(
                algorithm, request.env, variant, request.device, Path(folder) / str(i)
            )
            for i, variant in enumerate(VARIANTS)
        }
        try:
            turns: dict[str, list[Timing]] = {variant: [] for variant in trainings}
            for _ in range(3):
                for variant, training in trainings.items():
                    turns[variant].append(training.measure(request.seconds))
            # The median of three turns: other programs may disturb one of them.
            return {
                variant: (
                    sorted(turns[variant], key=lambda timing: timing.rate)[1],
                    training.diagnosis_seconds() / every,
                )
                for variant, training in trainings.items()
            }
        finally:
            for training in trainings.values():
                training.close()
