"""`hadamard evaluate`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import tyro

from hadamard import envs
from hadamard.cli.common import UserError, parse
from hadamard.core.random import child_seed
from hadamard.evaluate import evaluate
from hadamard.trained import load_agent


@dataclass(frozen=True)
class _Evaluate:
    """Play whole greedy episodes with a run's agent, unclipped and on full games."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    episodes: int = 20
    """How many episodes."""
    seed: int = 0
    """Seed of the games, which are other ones than in training."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Evaluate, words, "hadamard evaluate")
    if asked.episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {asked.episodes}")
    agent, spec, step, device = load_agent(asked.run, asked.device)
    parallel = max(n for n in range(1, 21) if asked.episodes % n == 0)
    played = envs.make(
        spec.env,
        child_seed(asked.seed, 20),
        parallel,
        device,
        training=False,
        atari_reset=spec.train.atari_reset,
        workers=None,
    )
    try:
        scores = [episode.score for episode in evaluate(agent, played, asked.episodes)]
    finally:
        played.close()
    spread = f" ± {statistics.stdev(scores):.2f} (sd)" if len(scores) > 1 else ""
    print(
        f"{asked.run} at step {step:,}: {statistics.fmean(scores):.2f}{spread} over "
        f"{len(scores)} greedy episodes of {spec.env} "
        f"(min {min(scores):g}, median {statistics.median(scores):g}, max {max(scores):g})"
    )
    return 0
