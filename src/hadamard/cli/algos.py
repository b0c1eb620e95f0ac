"""`hadamard algos`."""

from __future__ import annotations

from hadamard.cli.common import WRONG
from hadamard.core import discover


def main(words: list[str]) -> int:
    """Run the command."""
    if words:
        print("usage: hadamard algos\n\nList the algorithms.")
        return 0 if words[0] in ("-h", "--help") else WRONG
    print(listing(discover.ALGORITHMS))
    return 0


def listing(package: str) -> str:
    """Return one line for each algorithm or remedy in a package: its name and summary."""
    names = discover.names(package)
    width = max(map(len, names))
    return "\n".join(f"{name:<{width}}  {discover.summary(package, name)}" for name in names)
