"""`hadamard demo`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hadamard.cli.common import INTERRUPTED, parse
from hadamard.experiments.demo import demo
from hadamard.experiments.sweep import cores
from hadamard.trainer import Interrupted


@dataclass(frozen=True)
class _Demo:
    """Train tanh and tanh + HR side by side and write the page that compares them."""

    output: Path = Path("demo_output")
    """Where the runs and the page go; runs that are finished there are not made again."""
    algorithm: str = "dqn"
    """The algorithm."""
    env: str = "minatar/breakout"
    """The environment."""
    steps: int = 120_000
    """Steps of each run."""
    seeds: int = 2
    """Seeds of each variant."""
    jobs: int = field(default_factory=cores)
    """Runs at a time."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Demo, words, "hadamard demo")
    try:
        page = demo(asked.output, asked.algorithm, asked.env, asked.steps, asked.seeds, asked.jobs)
    except Interrupted:
        print("stopped and saved; the same command goes on")
        return INTERRUPTED
    print(f"\nOpen {page} in a browser.")
    return 0
