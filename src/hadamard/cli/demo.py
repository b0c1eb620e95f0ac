"""`hadamard demo`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hadamard.cli.common import parse
from hadamard.core.cores import usable_cores
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.demo import Setting, demo


@dataclass(frozen=True)
class _Demo:
    """Train tanh and tanh + HR side by side and write the page that compares them.

    The setting is one in which tanh saturates within minutes, so that the page shows what dormant
    neurons do: docs/demo.md says how it was found, and what other settings show.
    """

    output: Path = Path("demo_output")
    """Folder for the runs and the page; runs that are already finished in it are kept."""
    algorithm: str = "dqn"
    """The algorithm to train, see `hadamard algos`."""
    env: str = "minatar/space_invaders"
    """The environment to train in, see `hadamard envs`."""
    steps: int = 100_000
    """How many steps each run is trained for."""
    learning_rate: float | None = None
    """The learning rate. By default DQN's is 40 times the usual one, at which tanh saturates within
    minutes; other algorithms keep theirs."""
    seeds: int = 2
    """How many seeds each variant is trained with."""
    jobs: int = field(default_factory=usable_cores)
    """How many runs are trained at once; by default one per core."""


def main(words: list[str]) -> int:
    """Run the command."""
    request = parse(_Demo, words, "hadamard demo")
    setting = Setting(request.algorithm, request.env, request.steps, request.learning_rate)
    page = demo(request.output, setting, request.seeds, request.jobs)
    if page is None:
        print("stopped and saved; run the same command again to continue")
        return INTERRUPTED
    print(f"\nOpen {page} in a browser.")
    return 0
