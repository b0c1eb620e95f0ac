"""`hadamard sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from hadamard import envs
from hadamard.cli.common import UserError, parse
from hadamard.cli.train import spec_from
from hadamard.experiments import grid, sweep


@dataclass(frozen=True)
class _Sweep:
    """Train every variant on every environment with every seed, many runs at a time.

    Finished runs are skipped, interrupted ones gone on with, failed ones tried again. What follows
    a lone -- goes to every run: hadamard sweep dqn --seeds 3 -- --train.steps 200000
    """

    algorithm: tyro.conf.Positional[str]
    """The algorithm."""
    options: Annotated[sweep.Options, tyro.conf.arg(name="")]
    envs: str = "minatar/breakout"
    """Environments, with commas between them."""
    variants: str = "relu,tanh,tanh+hr"
    """Of baseline, relu, tanh, tanh+layernorm, hr, tanh+hr, relu+hr, 2hr, widened, crelu, redo."""
    seeds: str = "5"
    """How many seeds (5), a range (5-9) or a list (3,7)."""
    folder: Path | None = None
    """Where the run folders go; by default runs/ALGORITHM."""
    dry_run: bool = False
    """Only print the grid and what state each run is in."""


def main(words: list[str]) -> int:
    """Run the command."""
    cut = words.index("--") if "--" in words else len(words)
    flags = words[cut + 1 :]
    asked = parse(_Sweep, words[:cut], "hadamard sweep")
    variants = asked.variants.split(",")
    own = dict.fromkeys(("env", "seed", "run_dir"), "the sweep")
    own |= {field: f"the variant {name}" for name in variants for field in grid.variant(name)}
    for name, owner in own.items():
        flag = f"--{name.replace('_', '-')}"
        if any(word.partition("=")[0].replace("--redo.no-", "--redo.") == flag for word in flags):
            raise UserError(f"{flag} is what {owner} sets: leave it out after --")
    jobs = grid.grid(
        asked.algorithm,
        asked.envs.split(","),
        variants,
        grid.seeds_from(asked.seeds),
        asked.folder or Path("runs") / asked.algorithm,
        base=lambda env: spec_from(asked.algorithm, ["--env", env, *flags]),
    )
    for env in asked.envs.split(","):
        envs.make(env, 0, 1).close()  # a name that is wrong is told now, not by every run
    if asked.dry_run:
        asked.options.check()
        sweep.check(jobs)
        print("\n".join(f"{sweep.state(job):<12}{job.path}" for job in jobs))
        print(f"{len(jobs)} runs of {jobs[0].spec.train.horizon:,} steps")
        return 0
    summary = sweep.launch(jobs, asked.options)
    print(summary)
    return summary.code
