"""`hadamard evaluate`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import tyro

from hadamard import api
from hadamard.cli.common import UserError, parse
from hadamard.core import require
from hadamard.text import counted


@dataclass(frozen=True)
class _Evaluate:
    """Play greedy episodes with a run's agent: whole games with unclipped rewards."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    episodes: int = 20
    """How many episodes to play."""
    seed: int = 0
    """Seed of the episodes, which differ from those of training."""
    step: int | None = None
    """Step of the checkpoint, by default the newest one; --train.keep-every keeps older ones."""
    device: str = "auto"
    """cpu, cuda, ...; auto uses a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Evaluate, words, "hadamard evaluate")
    if options.episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {options.episodes}")
    require.not_negative(options, "seed", section="")
    played = api.evaluate(
        options.run,
        options.episodes,
        seed=options.seed,
        step=options.step,
        device=options.device,
    )
    scores = played.scores
    spread = f" ± {statistics.stdev(scores):.2f} (sd)" if len(scores) > 1 else ""
    print(
        f"{options.run} at step {played.step:,}: {statistics.fmean(scores):.2f}{spread} over "
        f"{counted(len(scores), 'greedy episode')} of {played.env} "
        f"(min {min(scores):g}, median {statistics.median(scores):g}, max {max(scores):g})"
    )
    return 0
