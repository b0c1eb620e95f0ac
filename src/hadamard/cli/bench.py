"""`hadamard bench`."""

from __future__ import annotations

from hadamard.cli.common import parse
from hadamard.experiments.bench import Bench, bench


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(Bench, words, "hadamard bench")
    print(bench(asked))
    return 0
