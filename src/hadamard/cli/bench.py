"""`hadamard bench`."""

from __future__ import annotations

from hadamard.cli.common import parse
from hadamard.experiments.bench import Bench, bench


def main(words: list[str]) -> int:
    """Run the command."""
    print(bench(parse(Bench, words, "hadamard bench")))
    return 0
