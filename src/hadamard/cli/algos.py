"""`hadamard algos`."""

from __future__ import annotations

from hadamard.cli.common import takes_no_words
from hadamard.core import discover


def main(words: list[str]) -> int:
    """Run the command."""
    if takes_no_words(words, "hadamard algos", "List the algorithms."):
        print(listing(discover.ALGORITHMS))
    return 0


def listing(package: str) -> str:
    """Return one line for each algorithm or remedy in a package: its name and summary."""
    names = discover.names(package)
    width = max(map(len, names), default=0)
    return "\n".join(f"{name:<{width}}  {discover.summary(package, name)}" for name in names)
