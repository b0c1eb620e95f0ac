"""Measure the speed of fleets: steps per second of all runs together."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from hadamard.core.config import RunSpec, overridden, to_dict
from hadamard.core.run import Run
from hadamard.experiments.bench import VARIANTS, Bench, Timing, places_of_emulators, short_warm_up
from hadamard.training import emulators, fleet, health_stream
from hadamard.training.fit import own_stream
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


class TimedFleets:
    """Fleets of one process that train a few seconds at a time, timed, diagnoses included.

    Runs of one shape are a fleet. Several fleets take turns, each on a CUDA stream of its own, as
    in training. Construction includes the warm-up: compilation, CUDA graph capture, the first
    blocks and a diagnosis.
    """

    def __init__(self, algorithm: str, specs: Sequence[RunSpec[Any]], folder: Path) -> None:
        start = time.perf_counter()
        with ExitStack() as stack:
            trainers = []
            for index, given in enumerate(specs):
                path = folder / str(index)
                quiet = {"run_dir": str(path), "train.fleet": "on", "train.tensorboard": False}
                quiet |= {"train.checkpoint_every": 0, **short_warm_up(algorithm, given)}
                setup = stack.enter_context(closing(Setup(algorithm, overridden(given, quiet))))
                settings = {"algorithm": algorithm, "spec": to_dict(setup.spec)}
                run = stack.enter_context(closing(Run.create(path, settings)))
                trainer = Trainer(setup, run, Quiet, resume=False)
                trainers.append(stack.enter_context(closing(trainer)))
            self.trainers = trainers
            names, own = [algorithm] * len(trainers), [trainer.spec for trainer in trainers]
            groups = fleet.grouped(trainers, names, own, [0] * len(own))
            self.fleets = [Fleet(group) for group in groups]
            self._loops = [unit.loop(lambda: False) for unit in self.fleets]
            several = len(self.fleets) > 1
            self._streams = [own_stream(unit) if several else None for unit in self.fleets]
            self._blocks()
            self._blocks()
            while not all(unit.computation.metrics for unit in self.fleets):
                self._blocks()
            self._diagnose()
            self._wait()
            self._resources = stack.pop_all()
        self.setup_seconds = time.perf_counter() - start

    @property
    def environments(self) -> int:
        """How many games are played side by side, those of the greedy policy included."""
        return sum(emulators.environments(trainer.spec) for trainer in self.trainers)

    def _blocks(self) -> None:
        """Train a block of every fleet."""
        for stream, loop in zip(self._streams, self._loops, strict=True):
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                next(loop)

    def _diagnose(self) -> None:
        """Diagnose all runs, because the first time loads libraries and compiles kernels."""
        for unit in self.fleets:
            first, train = unit.trainers[0], unit.trainers[0].spec.train
            seen = [unit.computation.recent(index) for index in range(len(unit.trainers))]
            if train.health_every:
                health_stream.examine_together(
                    [trainer.agent.network for trainer in unit.trainers],
                    [obs[-train.health_samples :] for obs in seen],
                    train,
                    [trainer.spec.seed for trainer in unit.trainers],
                    step=0,
                    discrete=not first.envs.spec.continuous,
                )

    def _wait(self) -> None:
        if self.trainers[0].device.type == "cuda":
            torch.cuda.synchronize()

    def measure(self, seconds: float) -> Timing:
        """Train for at least this long, up to the end of a block."""
        steps = sum(trainer.step for trainer in self.trainers)
        before = self._clocked()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            self._blocks()
        elapsed = time.perf_counter() - start
        steps = sum(trainer.step for trainer in self.trainers) - steps
        clocked = {name: seconds - before[name] for name, seconds in self._clocked().items()}
        return Timing(steps, elapsed, {**clocked, **self._device_parts(steps)})

    def _clocked(self) -> dict[str, float]:
        """Return the seconds that the runs' clocks show for each part."""
        clocks = [trainer.clock.seconds_by_part for trainer in self.trainers]
        return {
            part: sum(clock.get(name, 0.0) for clock in clocks for name in names)
            for part, names in _CLOCKED.items()
        }

    def _device_parts(self, steps: int) -> dict[str, float]:
        """Return how long the device plays and learns for so many steps, one after the other."""
        parts: dict[str, float] = {}
        for unit in self.fleets:
            computation = unit.computation
            if isinstance(computation, Hosted):
                continue
            blocks = steps / computation.block / len(self.trainers)
            for name, seconds in computation.timed(self._timer).items():
                parts[name] = parts.get(name, 0.0) + seconds * blocks
        return parts

    def _timer(self, function: Callable[[], object], count: int) -> float:
        """Return the seconds of one of several calls."""
        self._wait()
        start = time.perf_counter()
        for _ in range(count):
            function()
        self._wait()
        return (time.perf_counter() - start) / count

    def close(self) -> None:
        """Close the environments and the run folders."""
        for loop in self._loops:
            loop.close()
        self._resources.close()


class TimedFleet(TimedFleets):
    """Several seeds of one variant, see `TimedFleets`."""

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
        spec = overridden(default_spec(algorithm, env), {**VARIANTS[variant], **(changes or {})})
        specs = [overridden(spec, {"device": device, "seed": seed}) for seed in range(runs)]
        super().__init__(algorithm, specs, folder)
        self.fleet = self.fleets[0]


def bench(request: Bench) -> str:
    """Measure fleets of several sizes, and return the table."""
    changes = {name: _changes(name, request) for name in request.algorithms}
    for algorithm in request.algorithms:
        spec = overridden(default_spec(algorithm, request.env), changes[algorithm])
        if reason := fleet.obstacle(algorithm, spec):
            raise ValueError(f"--fleet measures runs that can be trained together: {reason}")
    counts = " / ".join(map(str, request.runs))
    where = " with the GPU's emulators" if any(changes.values()) else ""
    lines = [
        f"{request.env}{where}, torch {torch.__version__}: steps/s of all runs, for {counts} runs",
        f"{'':<16}" + "".join(f"{count:>12}" for count in request.runs) + "   parts of the last",
    ]
    for algorithm in request.algorithms:
        for variant in VARIANTS:
            timings = [
                measured(algorithm, request, variant, count, changes[algorithm])
                for count in request.runs
            ]
            lines.append(row(f"{algorithm} {variant}", timings))
    return "\n".join(lines)


def _changes(algorithm: str, request: Bench) -> dict[str, Any]:
    """Return the settings of an algorithm whose games the GPU's emulators play."""
    changes = {"train.emulators": "gpu"}
    if "gpu" not in places_of_emulators(request):
        return {}
    spec = overridden(default_spec(algorithm, request.env), changes)
    return changes if fleet.is_emulated(algorithm, spec) else {}


def row(label: str, timings: Sequence[Timing]) -> str:
    """Return a line of the table."""
    last = timings[-1]
    shares = ", ".join(f"{name} {last.parts[name] / last.seconds:.0%}" for name in PARTS)
    return f"{label:<16}" + "".join(f"{t.rate:>12,.0f}" for t in timings) + f"   {shares}"


def measured(
    algorithm: str, request: Bench, variant: str, runs: int, changes: Mapping[str, Any]
) -> Timing:
    """Return the timing of one fleet."""
    setting = algorithm, request.env, variant, runs, request.device
    with tempfile.TemporaryDirectory() as folder:
        timed = TimedFleet(*setting, Path(folder), changes)
        with closing(timed):
            return timed.measure(request.seconds)
