"""`hadamard evaluate`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import tyro

from hadamard import envs
from hadamard.cli.common import UserError, parse
from hadamard.core import require
from hadamard.core.random import child_seed
from hadamard.text import counted
from hadamard.training.evaluate import evaluate
from hadamard.training.load_agent import load_agent


@dataclass(frozen=True)
class _Evaluate:
    """Play greedy episodes with a run's agent: whole games with unclipped rewards."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    episodes: int = 20
    """How many episodes to play."""
    seed: int = 0
    """Seed of the episodes, which differ from those of training."""
    device: str = "auto"
    """cpu, cuda, ...; auto uses a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Evaluate, words, "hadamard evaluate")
    if options.episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {options.episodes}")
    require.not_negative(options, "seed", section="")
    agent, spec, step, device = load_agent(options.run, options.device)
    parallel = max(n for n in range(1, 21) if options.episodes % n == 0)
    environments = envs.make(
        spec.env,
        child_seed(options.seed, 20),
        parallel,
        device,
        training=False,
        atari_reset=spec.train.atari_reset,
        workers=None,
    )
    try:
        scores = [episode.score for episode in evaluate(agent, environments, options.episodes)]
    finally:
        environments.close()
    spread = f" ± {statistics.stdev(scores):.2f} (sd)" if len(scores) > 1 else ""
    print(
        f"{options.run} at step {step:,}: {statistics.fmean(scores):.2f}{spread} over "
        f"{counted(len(scores), 'greedy episode')} of {spec.env} "
        f"(min {min(scores):g}, median {statistics.median(scores):g}, max {max(scores):g})"
    )
    return 0
