"""What takes turns in ``bench_atari.py``: environments alone, learning steps, other programs."""

from __future__ import annotations

import re
import shlex
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from hadamard import envs
from hadamard.envs.groups import GroupedEnvs
from hadamard.experiments.bench import TimedTraining, Timing
from hadamard.training.setup import make_agent

COMPARED = ("ReLU", "tanh + HR")
"""The variants compared."""


class Alone:
    """Environments with random actions and no learner; groups of them play at once."""

    def __init__(
        self,
        env: str,
        count: int,
        device: torch.device,
        workers: int | None,
        groups: int = 1,
        atari_reset: str = "cleanrl",
    ) -> None:
        # On the learner's device: stacking frames on a CPU would count as the environments' time.
        self.envs = envs.make(
            env, 0, count, device, workers=workers, groups=groups, atari_reset=atari_reset
        )
        self.envs.reset()
        self.groups = self.envs.groups if isinstance(self.envs, GroupedEnvs) else [self.envs]
        actions = torch.randint(0, self.envs.spec.num_actions, (64, count))
        self.actions = [rows.split([g.num_envs for g in self.groups]) for rows in actions]

    def rate(self, seconds: float) -> float:
        """Return steps per second."""
        steps, start = 0, time.perf_counter()
        self.envs.send(torch.cat(self.actions[-1]))
        while time.perf_counter() - start < seconds:
            for group, action in zip(self.groups, self.actions[steps % 64], strict=True):
                group.receive()
                group.send(action)
            steps += 1
        self.envs.receive()
        return (steps + 1) * self.envs.num_envs / (time.perf_counter() - start)

    def close(self) -> None:
        """Stop the environments."""
        self.envs.close()


class PeerFailure(RuntimeError):
    """Another program did not print its speed."""


def peer(command: str) -> float:
    """Run another program and return the last steps per second it printed."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    speeds = re.findall(r"sps\W+([\d.]+)", done.stdout, flags=re.IGNORECASE)
    if done.returncode or not speeds:
        # The emulators' bindings list what was not freed, after the reason.
        errors = [line for line in done.stderr.splitlines() if "leaked" not in line]
        last_lines = "\n".join(errors[-12:])
        raise PeerFailure(f"{command!r} ended with {done.returncode}:\n{last_lines}")
    return float(speeds[-1])


def measure_waiting(training: TimedTraining, seconds: float) -> Timing:
    """Train for a while and wait for the device after learning, so that its time counts there."""
    agent: Any = training.trainer.agent
    observe = agent.observe

    def observe_and_wait(*arguments: Any) -> Any:
        metrics = observe(*arguments)
        if training.trainer.device.type == "cuda":
            torch.cuda.synchronize()
        return metrics

    agent.observe = observe_and_wait
    timing = training.measure(seconds)
    agent.observe = observe
    return timing


class Updates:
    """One algorithm's learning step, repeated on one batch of its own steps."""

    def __init__(self, training: TimedTraining) -> None:
        agent: Any = training.trainer.agent
        self.learn, self.device = agent.learn, training.trainer.device
        self.host_share = 1.0  # of the last timing: launching the work, not waiting for it
        batches: list[tuple[torch.Tensor, ...]] = []

        def learn_and_keep(*batch: torch.Tensor) -> Any:
            batches.append(tuple(part.clone() for part in batch))
            return self.learn(*batch)

        agent.learn = learn_and_keep
        while not batches:
            training.trainer.advance()
        agent.learn = self.learn
        self.batch = batches[-1]

    def seconds(self, count: int, learners: Sequence[Any] = ()) -> float:
        """Time updates in a row; several learners run each on a stream of its own.

        As in training, all updates of one learner are launched before the next learner's.
        """
        each = learners or [self.learn]
        streams = [torch.cuda.Stream() if len(learners) > 1 else None for _ in each]
        start = time.perf_counter()
        for learn, stream in zip(each, streams, strict=True):
            with torch.cuda.stream(stream):  # of None: the usual one
                for _ in range(count):
                    learn(*self.batch)
        launched = time.perf_counter() - start
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        finished = time.perf_counter() - start
        self.host_share = launched / finished
        return finished / count

    def seeds_together(
        self, training: TimedTraining, seeds: int, count: int, turns: int
    ) -> tuple[float, float]:
        """Return how many times as long as one learner several take, and the host's share of it."""
        trainer = training.trainer
        agents: list[Any] = [
            make_agent(trainer.algorithm, replace(trainer.spec, seed=i), trainer.envs, self.device)
            for i in range(seeds)
        ]
        learners = [agent.learn for agent in agents]
        for learn in learners:
            learn(*self.batch)
        torch.cuda.synchronize()
        ratios, shares = [], []
        for _ in range(turns):
            single, together = self.seconds(count, learners[:1]), self.seconds(count, learners)
            ratios.append(together / single)
            shares.append(self.host_share)
        return statistics.median(ratios), statistics.median(shares)
