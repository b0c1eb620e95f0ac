"""What commands share: how options are parsed, and the exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

try:
    import tyro
except ImportError:
    sys.exit("the command line needs a few more packages: pip install 'hadamard-rl[train]'")

#: Exit codes: the settings or the run folder were wrong; training was asked to stop and saved.
WRONG, INTERRUPTED = 2, 75


class UserError(Exception):
    """A message for the person at the terminal, without a traceback."""


def parse(kind: Any, words: Sequence[str], prog: str, **options: Any) -> Any:
    """Return the dataclass that the words fill, or print the help it has."""
    return tyro.cli(kind, args=list(words), prog=prog, **options)


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of a flag, before the words are parsed."""
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
