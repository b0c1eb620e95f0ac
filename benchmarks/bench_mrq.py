"""MR.Q from pixels: how long its two updates take, and how many training steps a second that is.

    python benchmarks/bench_mrq.py [--seeds 1 4 8] [--capacity 1000000] [--ways eager graph ...]
                                   [--public FOLDER]

Observations of 9 x 84 x 84, 6 actions, batch 256, a full replay of random frames, no environment.
A training step is one update of values and policy and, 250 at a time, one of the encoder; drawing,
shifting and priorities are parts of both. The forms take turns in one process and medians are
compared. ``--seeds`` then trains several agents at once on the one GPU, in a process each (start
CUDA's MPS before), for ``--seconds``; ``--one-process`` trains them in one process, too, each on a
stream of its own. ``--public`` times a checkout of the published code, as it is, in the same run:
name its folder with MRQ.py. Without ``--ways`` names (``--ways`` alone) only these are timed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from hadamard.algos.mrq import MRQ
from hadamard.core.config import overridden
from hadamard.core.types import EnvSpec
from hadamard.training import start
from timing import in_turns, machine, print_kernels, seconds_of

PIXELS = EnvSpec((9, 84, 84), torch.uint8, frames=3, action_size=6, max_steps=500)
FORMS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "HR": {"net.layer": "hadamard"},
    "widened": {"net.layer": "widened"},
}
# Captured as a graph, compiled, matrices in TF32 (convolutions may be by PyTorch's default).
WAYS = {
    "eager": (False, False, False),
    "graph": (True, False, False),
    "graph, TF32": (True, False, True),
    "graph, compiled": (True, True, False),
    "graph, compiled, TF32": (True, True, True),
}

PERIOD = 10
"""Encoder updates in a row, and as many steps, where several agents train."""
SHARED = 100_000
"""Frames in the replay of each of several agents: 2 GB."""


def full_agent(device: torch.device, capacity: int, **changes: Any) -> MRQ:
    """Return an agent whose replay is full of random frames."""
    spec = overridden(
        start.default_spec("mrq", "dmc/walker-walk"),
        {"algo.replay_capacity": capacity, "algo.replay_storage": "device", **changes},
    )
    agent = MRQ(PIXELS, spec, device)
    replay = agent.replay
    assert replay.priority is not None
    replay.frames.random_(0, 256)
    replay.action.uniform_(-1, 1)
    replay.reward.uniform_(0, 1)
    replay.priority.uniform_(1, 2)
    replay.usable[:, replay.stack : -replay.horizon] = True
    replay.pushed = [replay.slots]
    return agent


def as_in_training(device: torch.device, tf32: bool = True) -> None:
    """Choose products and convolutions as ``hadamard train`` does."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.benchmark = device.type == "cuda"


def free(device: torch.device) -> None:
    """Free the memory of agents that are no longer used; each refers to itself."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def updates(
    device: torch.device,
    capacity: int,
    ways: Iterable[str],
    count: int,
    forms: Iterable[str],
    *,
    profiled: bool,
) -> float:
    """Print how long updates take, in every form and way; return the first form's last steps/s."""
    print(f"{'':34}{'values+policy':>15}{'encoder':>11}{'steps/s':>9}{'/ first':>12}")
    rate = math.nan
    for way in ways:
        graph, compiles, tf32 = WAYS[way]
        as_in_training(device, tf32)
        compiling = {"train.compile": "on" if compiles else "off"}
        agents = {name: full_agent(device, capacity, **FORMS[name], **compiling) for name in forms}
        turns = 5 if device.type == "cuda" else 1
        calls = ("learn", "learn_encoder") if graph else ("_learn", "_learn_encoder")
        rest, encoder = (
            in_turns(
                {name: getattr(agent, call) for name, agent in agents.items()}, count, turns, device
            )
            for call in calls
        )
        steps = {name: rest[name] + encoder[name] for name in forms}
        for name, seconds in steps.items():
            print(
                f"{f'{name}, {way}':<34}{1e3 * rest[name]:>12.3f} ms{1e3 * encoder[name]:>8.3f} ms"
                f"{1 / seconds:>9.3g}{seconds / next(iter(steps.values())):>12.2f}",
                flush=True,
            )
        if profiled:
            for name, agent in agents.items():
                for call in calls:
                    print_kernels(f"{name}, {way}: {call}", getattr(agent, call))
        del agents
        free(device)
        rate = 1 / next(iter(steps.values()))
    return rate


def public(folder: str, device: torch.device, capacity: int) -> float:
    """Return the training steps per second of the published code, encoder updates included."""
    sys.path.insert(0, folder)
    module: Any = importlib.import_module("MRQ")
    settings = {"buffer_size": capacity, "buffer_size_before_training": 1_000}
    agent = module.Agent((3, 84, 84), 6, 1.0, True, False, device, history=3, hp=settings)
    draw = np.random.default_rng(0)
    state = draw.integers(0, 256, (9, 84, 84), dtype=np.uint8)
    for i in range(2_000):
        new = np.roll(state, -3, axis=0)
        new[-3:] = draw.integers(0, 256, (3, 84, 84), dtype=np.uint8)
        action = draw.uniform(-1, 1, 6)
        agent.replay_buffer.add(state, action, new, draw.uniform(), False, i % 500 == 499)
        state = new
    period: int = agent.target_update_freq

    def block() -> None:
        for _ in range(period):
            agent.train()

    block()
    return period / seconds_of(block, 2, device)


def training(agents: list[MRQ], period: int) -> Callable[[], None]:
    """Return one round of training of all: a block of encoder updates, then as many steps."""
    cuda = agents[0].device.type == "cuda"
    streams = [torch.cuda.Stream() if cuda else None for _ in agents]

    def call_all(name: str) -> None:
        for agent, stream in zip(agents, streams, strict=True):
            with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                getattr(agent, name)()

    def block() -> None:
        for name in ("learn_encoder", "learn"):
            for _ in range(period):
                call_all(name)

    return block


def rate_of(block: Callable[[], None], period: int, seconds: float, device: torch.device) -> float:
    """Return the training steps per second of an agent over at least this time."""
    start, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds or not steps:
        seconds_of(block, 1, device)
        steps += period
    return steps / elapsed


def _process(device_name: str, capacity: int, form: dict[str, Any], pipe: Connection) -> None:
    """Train an agent for as many seconds as the pipe says, again and again."""
    device = torch.device(device_name)
    as_in_training(device)
    block = training([full_agent(device, capacity, **form)], PERIOD)
    block()  # compiles and captures
    with contextlib.suppress(EOFError):  # the main process has ended
        pipe.send("ready")
        while True:
            pipe.send(rate_of(block, PERIOD, pipe.recv(), device))


class Learner:
    """A process that trains one agent."""

    def __init__(self, device: torch.device, capacity: int, form: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arguments = str(device), capacity, form, theirs
        self.process = context.Process(target=_process, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False

    def wait(self) -> None:
        """Wait until the agent has compiled and captured its updates."""
        if not self.ready:
            self.pipe.recv()
            self.ready = True

    def end(self) -> None:
        """End the process, and free its memory on the device."""
        self.pipe.close()
        self.process.join()


def several(
    device: torch.device, capacity: int, seeds: list[int], forms: list[str], seconds: float
) -> None:
    """Print the training steps per second of several agents at once, one process each."""
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"\n{'processes of one agent each':34}{'steps/s in all':>15}{'of each':>10}{'set-up':>9}")
    for name in forms:
        # The first process compiles, with all cores. The others find what it has compiled.
        os.environ.pop("TORCHINDUCTOR_COMPILE_THREADS", None)
        learners: list[Learner] = []
        for count in sorted(seeds):
            start = time.perf_counter()
            while len(learners) < count:
                seed = len(learners)
                learners.append(Learner(device, capacity, {**FORMS[name], "seed": seed}))
                if seed == 0:
                    learners[0].wait()
                    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
            for learner in learners:
                learner.wait()
            setup = time.perf_counter() - start
            for learner in learners:
                learner.pipe.send(seconds)
            rates = [learner.pipe.recv() for learner in learners]
            label = f"{name}, {count}"
            print(
                f"{label:<34}{sum(rates):>15.1f}{sum(rates) / count:>10.1f}{setup:>7.0f} s",
                flush=True,
            )
        for learner in learners:
            learner.end()


def in_one_process(
    device: torch.device, capacity: int, seeds: list[int], forms: list[str], seconds: float
) -> None:
    """Print the training steps per second of several agents, each on a stream of its own."""
    print(f"\n{'agents in one process':34}{'steps/s in all':>15}{'of each':>10}")
    as_in_training(device)
    for name in forms:
        agents: list[MRQ] = []
        for count in sorted(seeds):
            while len(agents) < count:
                agents.append(full_agent(device, capacity, **FORMS[name], seed=len(agents)))
            block = training(agents, PERIOD)
            block()
            rate = rate_of(block, PERIOD, seconds, device)
            print(f"{f'{name}, {count}':<34}{count * rate:>15.1f}{rate:>10.1f}", flush=True)
        del agents, block
        free(device)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--capacity", type=int, help="frames in the replay, 21 kB each")
    parser.add_argument("--count", type=int, help="updates in a turn")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS))
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[], help="agents at once")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of these")
    parser.add_argument("--one-process", action="store_true", help="also in one process")
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    parser.add_argument("--public", help="a checkout of the published code, to time beside")
    options = parser.parse_args()
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    capacity = options.capacity or (1_000_000 if cuda else 2_000)
    ways = options.ways if options.ways is not None else list(WAYS) if cuda else ["eager"]
    print(f"{machine()}; replay of {capacity:,} frames, batch 256", flush=True)
    count = options.count or (100 if cuda else 1)
    ours = math.nan
    if ways:
        ours = updates(device, capacity, ways, count, options.forms, profiled=options.profile)
    if options.public:
        torch.set_float32_matmul_precision("highest")  # as it is
        torch.backends.cudnn.benchmark = False
        published = public(options.public, device, capacity)
        print(
            f"the published code: {published:.3g} steps/s; "
            f"ours, in the last way, {ours / published:.1f}x"
        )
    if options.seeds:
        # Each agent has a replay of its own on the device.
        arguments = device, options.capacity or min(capacity, SHARED), options.seeds
        several(*arguments, options.forms, options.seconds)
        if options.one_process:
            in_one_process(*arguments, options.forms, options.seconds)


if __name__ == "__main__":
    main()
