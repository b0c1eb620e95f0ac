"""Measure the speed of fleets: steps per second of all runs together."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

from hadamard.core.config import overridden, to_dict
from hadamard.core.run import Run
from hadamard.experiments.bench import VARIANTS, Bench, Timing, short_warm_up
from hadamard.training import fleet
from hadamard.training.fleet.fleet import Fleet
from hadamard.training.fleet.hosted import Hosted
from hadamard.training.progress import Quiet
from hadamard.training.setup import Setup
from hadamard.training.start import default_spec
from hadamard.training.trainer import Trainer

PARTS = ("playing", "learning", "health")
"""The parts whose shares the table shows; the rest is the runs' records."""


_CLOCKED = {"playing": ("acting", "stepping"), "learning": ("learning",), "health": ("health",)}
"""What the clocks of runs call these parts, where the host plays."""


class TimedFleet:
    """A fleet that trains a few seconds at a time, timed, diagnoses included.

    Construction includes the warm-up: compilation, CUDA graph capture and the first block.
    """

    def __init__(
        self,
        algorithm: str,
        env: str,
        variant: str,
        runs: int,
        device: str,
        folder: Path,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        settings = {**VARIANTS[variant], **(changes or {})}
        spec = overridden(default_spec(algorithm, env), settings)
        quiet = {"device": device, "train.fleet": "on", "train.tensorboard": False}
        quiet |= {"train.checkpoint_every": 0, **short_warm_up(algorithm, spec)}
        start = time.perf_counter()
        with ExitStack() as stack:
            trainers = []
            for seed in range(runs):
                own = {**quiet, "seed": seed, "run_dir": str(folder / str(seed))}
                setup = stack.enter_context(closing(Setup(algorithm, overridden(spec, own))))
                settings = {"algorithm": algorithm, "spec": to_dict(setup.spec)}
                run = stack.enter_context(closing(Run.create(folder / str(seed), settings)))
                trainer = Trainer(setup, run, Quiet, resume=False)
                trainers.append(stack.enter_context(closing(trainer)))
            self.trainers = trainers
            self.fleet = Fleet(trainers)
            self._loop = self.fleet.loop(lambda: False)
            self._block()
            self._block()
            while not self.fleet.computation.metrics:
                self._block()
            self._resources = stack.pop_all()
        self.setup_seconds = time.perf_counter() - start

    def _block(self) -> None:
        next(self._loop)
        if self.trainers[0].device.type == "cuda":
            torch.cuda.synchronize()

    def measure(self, seconds: float) -> Timing:
        """Train for at least this long, up to the end of a block."""
        steps = sum(trainer.step for trainer in self.trainers)
        before = self._clocked()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            next(self._loop)
        elapsed = time.perf_counter() - start
        steps = sum(trainer.step for trainer in self.trainers) - steps
        clocked = {name: seconds - before[name] for name, seconds in self._clocked().items()}
        on_device = {} if isinstance(self.fleet.computation, Hosted) else self._device_parts(steps)
        return Timing(steps, elapsed, {**clocked, **on_device})

    def _clocked(self) -> dict[str, float]:
        """Return the seconds that the runs' clocks show for each part."""
        clocks = [trainer.clock.seconds_by_part for trainer in self.trainers]
        return {
            part: sum(clock.get(name, 0.0) for clock in clocks for name in names)
            for part, names in _CLOCKED.items()
        }

    def _device_parts(self, steps: int) -> dict[str, float]:
        """Return how long the device plays and learns for so many steps."""
        computation = self.fleet.computation
        assert not isinstance(computation, Hosted)
        blocks = steps / computation.block / len(self.trainers)
        parts = computation.timed(self._timer)
        return {name: seconds * blocks for name, seconds in parts.items()}

    def _timer(self, function: Callable[[], object], count: int) -> float:
        """Return the seconds of one of several calls."""
        on_gpu = self.trainers[0].device.type == "cuda"
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            function()
        if on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    def close(self) -> None:
        """Close the environments and the run folders."""
        self._loop.close()
        self._resources.close()


def bench(request: Bench) -> str:
    """Measure fleets of several sizes, and return the table."""
    for algorithm in request.algorithms:
        if reason := fleet.obstacle(algorithm, default_spec(algorithm, request.env)):
            raise ValueError(f"--fleet measures runs that can be trained together: {reason}")
    counts = " / ".join(map(str, request.runs))
    lines = [
        f"{request.env}, torch {torch.__version__}: steps/s of all runs, for {counts} runs",
        f"{'':<16}" + "".join(f"{count:>12}" for count in request.runs) + "   parts of the last",
    ]
    for algorithm in request.algorithms:
        for variant in VARIANTS:
            timings = [
                measured(algorithm, request.env, variant, count, request.device, request.seconds)
                for count in request.runs
            ]
            lines.append(row(f"{algorithm} {variant}", timings))
    return "\n".join(lines)


def row(label: str, timings: Sequence[Timing]) -> str:
    """Return a line of the table."""
    last = timings[-1]
    shares = ", ".join(f"{name} {last.parts[name] / last.seconds:.0%}" for name in PARTS)
    return f"{label:<16}" + "".join(f"{t.rate:>12,.0f}" for t in timings) + f"   {shares}"


def measured(
    algorithm: str, env: str, variant: str, runs: int, device: str, seconds: float
) -> Timing:
    """Return the timing of one fleet."""
    with tempfile.TemporaryDirectory() as folder:
        timed = TimedFleet(algorithm, env, variant, runs, device, Path(folder))
        with closing(timed):
            return timed.measure(seconds)
