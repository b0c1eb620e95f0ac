"""Training against the environments' own limit, HR against ReLU, seeds together, peers beside us.

    python benchmarks/bench_atari.py                           # PQN on atari/Breakout
    python benchmarks/bench_atari.py --env minatar/breakout --algorithm dqn --set train.compile=on
    python benchmarks/bench_atari.py --peer "CleanRL" "python cleanrl/pqn_atari.py"
    python benchmarks/bench_atari.py --grow net.width=128 net.width=512 net.width=2048

Everything takes turns in one run, and the middle of three turns is reported:

- the limit: environments alone with random actions, in one process and spread over several;
- training: ReLU and tanh + HR end to end, as a share of the limit, and where the time goes;
- one update: milliseconds, eager and as the device allows (captured on a GPU), with --set as told;
- seeds: training steps per second of several runs in one process (``hadamard train --seeds``);
- peers: any command that prints a last ``SPS: number``, run between our turns.

With ``--grow`` it measures instead how all of that changes with a setting: one row for each,
several settings of a row joined by a +, as in ``algo.num_envs=512+algo.minibatches=128``.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hadamard import envs
from hadamard.core.config import to_dict
from hadamard.core.run import Run
from hadamard.experiments.bench import PARTS, Lane, Quiet, Timing
from hadamard.train import Trainer
from timing import machine

VARIANTS = ("ReLU", "tanh + HR")
TURNS = 3


def alone(env: str, count: int, workers: int, seconds: float) -> float:
    """Return steps per second of the environments with random actions."""
    with closing(envs.make(env, 0, count, workers=workers)) as made:
        made.reset()
        actions = torch.randint(0, made.spec.num_actions, (64, count))
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            made.step(actions[steps % 64])
            steps += 1
        return steps * count / (time.perf_counter() - start)


def peer(command: str) -> float:
    """Run another program and return the last steps per second it told."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    told = re.findall(r"sps\W+([\d.]+)", done.stdout, flags=re.IGNORECASE)
    if done.returncode or not told:
        raise SystemExit(f"{command!r} ended with {done.returncode}: {done.stderr[-500:]}")
    return float(told[-1])


def together(lane: Lane, folder: Path, seeds: int, seconds: float) -> Timing:
    """Train several seeds in one process for a while."""
    with ExitStack() as stack:
        trainers = []
        for seed in range(seeds):
            spec = replace(lane.trainer.spec, seed=seed, run_dir=str(folder / f"seed{seed}"))
            trainer = stack.enter_context(closing(Trainer(lane.trainer.algorithm, spec)))
            config = {"algorithm": lane.trainer.algorithm, "spec": to_dict(spec)}
            trainer.open(Run.create(folder / f"seed{seed}", config), Quiet, resume=False)
            trainers.append(trainer)
        loops = [trainer.loop(lambda: False) for trainer in trainers]

        def advance(going: Callable[[], bool]) -> None:
            while going():
                for trainer, loop in zip(trainers, loops, strict=True):
                    with trainer.own_stream():
                        next(loop)

        advance(lambda: any(t.latest is None or not t.agent.settled for t in trainers))
        first, start = sum(t.step for t in trainers), time.perf_counter()
        advance(lambda: time.perf_counter() - start < seconds or not trainers[0].agent.settled)
        if trainers[0].device.type == "cuda":
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        for loop in loops:
            loop.close()
        return Timing(sum(t.step for t in trainers) - first, elapsed, {})


class Updates:
    """One algorithm's learning step on a batch of what it has seen, again and again."""

    def __init__(self, lane: Lane) -> None:
        agent: Any = lane.trainer.agent
        self.learn, self.device = agent.learn, lane.trainer.device
        self.batch: tuple[torch.Tensor, ...] = ()
        agent.learn = self._keep
        while not self.batch:
            lane.advance()
        agent.learn = self.learn

    def _keep(self, *batch: torch.Tensor) -> Any:
        self.batch = tuple(part.clone() for part in batch)
        return self.learn(*batch)

    def seconds(self, count: int) -> float:
        """Time updates in a row."""
        start = time.perf_counter()
        for _ in range(count):
            self.learn(*self.batch)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / count


def grow(asked: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Print a row for each of the settings asked for."""
    print(f"{'':<48}{'alone':>10}" + "".join(f"{v:>12}{'update':>11}" for v in VARIANTS))
    for text in asked.grow:
        settings = {**changes, **dict(_setting(part) for part in text.split("+"))}
        cells = []
        for variant in VARIANTS:
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                place = Path(folder) / "run"
                lane = Lane(asked.algorithm, asked.env, variant, asked.device, place, settings)
                stack.enter_context(closing(lane))
                count, workers = lane.trainer.envs.num_envs, lane.trainer.spec.train.env_workers
                rate = statistics.median(lane.measure(asked.seconds).rate for _ in range(TURNS))
                took = Updates(lane).seconds(asked.updates)
                cells.append(f"{rate:>12,.0f}{took * 1e3:>8.3f} ms")
        limit = alone(asked.env, count, workers, asked.seconds)
        print(f"{text:<48}{limit:>10,.0f}" + "".join(cells), flush=True)


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", default="atari/Breakout")
    parser.add_argument("--algorithm", default="pqn")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--seeds", type=int, default=5, help="runs in one process; 0: none")
    parser.add_argument("--updates", type=int, default=50, help="in a row, each turn")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], help="settings, as train.compile=on")
    parser.add_argument("--grow", nargs="+", help="rows of settings, as algo.num_envs=8")
    parser.add_argument("--peer", nargs=2, action="append", default=[], help="name and command")
    asked = parser.parse_args()
    changes = dict(_setting(text) for text in asked.set)
    print(f"{asked.algorithm} on {asked.env} {' '.join(asked.set)}, {machine()}")
    if asked.grow:
        grow(asked, changes)
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lanes = {}
        for variant in VARIANTS:
            start = time.perf_counter()
            lane = Lane(
                asked.algorithm, asked.env, variant, asked.device, Path(folder) / variant, changes
            )
            lanes[variant] = stack.enter_context(closing(lane))
            print(f"{variant}: started and warmed up in {time.perf_counter() - start:.0f} s")
        count = lanes["ReLU"].trainer.envs.num_envs
        cores = len(os.sched_getaffinity(0))
        layouts = [w for w in (0, 2, 4, 8, 16) if w <= min(cores, count)]
        limits: dict[int, list[float]] = {workers: [] for workers in layouts}
        turns: dict[str, list[Timing]] = {variant: [] for variant in lanes}
        peers: dict[str, list[float]] = {name: [] for name, _ in asked.peer}
        for _ in range(TURNS):
            for workers in layouts:
                limits[workers].append(alone(asked.env, count, workers, asked.seconds))
            for variant, lane in lanes.items():
                turns[variant].append(lane.measure(asked.seconds))
            for name, command in asked.peer:
                peers[name].append(peer(command))
        limit = max(statistics.median(rates) for rates in limits.values())
        for workers, rates in limits.items():
            where = f"{workers} processes" if workers else "one process"
            print(f"{count} environments alone, {where}: {statistics.median(rates):,.0f} steps/s")
        print(
            f"{'':<12}{'steps/s':>10}{'limit':>8}{'/ ReLU':>8}" + "".join(f"{p:>13}" for p in PARTS)
        )
        middle = {name: sorted(ts, key=lambda t: t.rate)[TURNS // 2] for name, ts in turns.items()}
        for variant, timing in middle.items():
            row = f"{variant:<12}{timing.rate:>10,.0f}{timing.rate / limit:>8.0%}"
            row += f"{timing.rate / middle['ReLU'].rate:>8.2f}"
            print(row + "".join(f"{timing.parts.get(p, 0) / timing.seconds:>13.1%}" for p in PARTS))
        for name, rates in peers.items():
            rate = statistics.median(rates)
            ratios = ", ".join(f"{v} {t.rate / rate:.2f}x" for v, t in middle.items())
            print(f"{name}: {rate:,.0f} steps/s; ours is {ratios}")
        updates = {variant: Updates(lane) for variant, lane in lanes.items()}
        times: dict[str, list[float]] = {variant: [] for variant in updates}
        for _ in range(TURNS + 2):
            for variant, update in updates.items():
                times[variant].append(update.seconds(asked.updates))
        plain = statistics.median(times["ReLU"])
        for variant, spent in times.items():
            took = statistics.median(spent)
            print(f"one update, {variant}: {took * 1e3:.3f} ms ({took / plain:.2f}x)")
        if asked.seeds:
            for variant, lane in lanes.items():
                timing = together(
                    lane, Path(folder) / f"{variant} together", asked.seeds, asked.seconds
                )
                print(
                    f"{asked.seeds} seeds in one process, {variant}: {timing.rate:,.0f} steps/s in "
                    f"all, {timing.rate / middle[variant].rate:.2f}x those of one"
                )


if __name__ == "__main__":
    main()
