"""Atari's emulators alone with random actions: on a GPU, in processes of the CPU, and ale-py's.

    python benchmarks/bench_emulators.py                       # 128 games of Breakout
    python benchmarks/bench_emulators.py --game Seaquest --num-envs 8 --device cuda

All take turns in one run, and the middle of the turns is reported, as steps per second (a step is
four frames) and as a share of ale-py's vector environment (its own threads, same preprocessing,
no forced actions after a lost life, and games that cannot be saved). Two groups play at once. With
a GPU its emulators are measured, too: steps with stacked observations, queued without waiting.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import numpy as np
import torch

from candidates import Alone
from hadamard.core.cores import usable_cores
from hadamard.envs import atari, emulator_trouble
from hadamard.envs.atari2600.batch import Batch, settings_of
from hadamard.envs.atari2600.roms import minimal_actions
from hadamard.envs.common import environment_seeds
from timing import machine


class Vector:
    """ale-py's vector environment."""

    def __init__(self, game: str, count: int) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self.envs = AtariVectorEnv(
            atari.rom(game), count, repeat_action_probability=0.0, reward_clipping=False
        )
        self.envs.reset(seed=0)
        actions = len(self.envs.ale.get_action_set())
        self.actions = np.random.default_rng(0).integers(actions, size=(64, count))

    def rate(self, seconds: float) -> float:
        """Return steps per second."""
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            self.envs.step(self.actions[steps % 64])
            steps += 1
        return steps * self.envs.num_envs / (time.perf_counter() - start)

    def close(self) -> None:
        """Stop its threads."""
        self.envs.close()


class OnGpu:
    """The emulators of the GPU."""

    def __init__(self, game: str, count: int, atari_reset: str) -> None:
        device, name = torch.device("cuda"), atari.rom(game)
        self.batch = Batch([name] * count, settings_of(atari_reset, training=True), device)
        self.refill = atari_reset == "cleanrl"
        self.batch.begin(environment_seeds(0, count))
        self.batch.fill_stacks()
        num_actions = len(minimal_actions(name))
        self.actions = torch.randint(num_actions, (64, count), device=device)
        for action in self.actions:  # games at different places
            self.step(action)

    def step(self, action: torch.Tensor) -> None:
        """Queue one step."""
        self.batch.play(action)
        self.batch.advance_stacks(self.batch.outcome(), refill_after_life=self.refill)

    def rate(self, seconds: float) -> float:
        """Return steps per second."""
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for action in self.actions[:16]:
                self.step(action)
            torch.cuda.synchronize()
            steps += 16
        return steps * self.batch.count / (time.perf_counter() - start)


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--device", default="cpu", help="where our frames are stacked")
    parser.add_argument("--workers", type=int, nargs="*", help="processes to try")
    parser.add_argument("--atari-reset", default="envpool", choices=atari.RESETS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    count, device, cores = options.num_envs, torch.device(options.device), usable_cores()
    game, reset = options.game, options.atari_reset
    print(f"{count} games of {game}, begun as {reset}, {machine()}, {cores} cores")
    candidates = options.workers or (cores // 2, cores, 2 * cores, 4 * cores)
    worker_counts = sorted({workers for workers in candidates if 0 < workers <= count})
    with ExitStack() as stack:
        ways: dict[str, Callable[[float], float]] = {}

        def add(name: str, workers: int, groups: int) -> None:
            began = time.perf_counter()
            alone = Alone(f"atari/{game}", count, device, workers, groups, reset)
            ways[name] = stack.enter_context(closing(alone)).rate
            print(f"{name}: ready in {time.perf_counter() - began:.1f} s", flush=True)

        peer = "ale-py's vector environment"
        ways[peer] = stack.enter_context(closing(Vector(game, count))).rate
        add("in one process", 0, 1)
        if emulator_trouble(f"atari/{game}", torch.device("cuda")) is None:
            began = time.perf_counter()
            ways["on the GPU"] = OnGpu(game, count, reset).rate
            print(f"on the GPU: ready in {time.perf_counter() - began:.1f} s", flush=True)
        for workers in worker_counts:
            add(f"{workers} workers", workers, 1)
            if workers > 1:
                add(f"{workers} workers, 2 groups", workers, 2)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.turns):
            for name, rate in ways.items():
                rates[name].append(rate(options.seconds))
    medians = {name: statistics.median(turns) for name, turns in rates.items()}
    print(f"\n{'':<30}{'steps/s':>10}{'range':>20}{'/ ale-py':>10}")
    for name, turns in rates.items():
        low_to_high = f"{min(turns):,.0f} to {max(turns):,.0f}"
        ratio = medians[name] / medians[peer]
        print(f"{name:<30}{medians[name]:>10,.0f}{low_to_high:>20}{ratio:>10.2f}")


if __name__ == "__main__":
    main()
