"""`hadamard algos`."""

from __future__ import annotations

import importlib

from hadamard.cli.common import WRONG
from hadamard.core import discover
from hadamard.trainer import ALGORITHMS


def main(words: list[str]) -> int:
    """Run the command."""
    if words:
        print("usage: hadamard algos\n\nList the algorithms.")
        return 0 if words[0] in ("-h", "--help") else WRONG
    print(listing())
    return 0


def listing() -> str:
    """Return one line for each algorithm."""
    found = algorithms()
    width = max(map(len, found))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in found.items())


def algorithms() -> dict[str, str]:
    """Return the algorithms, each with what it is."""
    return {
        name: (importlib.import_module(f"{ALGORITHMS}.{name}").__doc__ or "").partition("\n")[0]
        for name in discover.names(ALGORITHMS)
    }
