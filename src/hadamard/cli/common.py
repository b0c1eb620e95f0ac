"""Shared by the commands: parsing of options, and errors for the user."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from hadamard.core import require

WRONG = 2
"""Exit code of a command whose options or run folders cannot be used."""


class UserError(Exception):
    """A message for the person at the terminal, without a traceback."""


def parse(kind: Any, words: Sequence[str], prog: str, **options: Any) -> Any:
    """Return a dataclass filled from a command's words; ``--help`` prints its fields and exits."""
    import tyro

    request = tyro.cli(kind, args=list(words), prog=prog, **options)
    # Sections that the command line spells without a prefix.
    hints = typing.get_type_hints(type(request), include_extras=True)
    inline = [
        name
        for name, hint in hints.items()
        if any(getattr(mark, "name", None) == "" for mark in getattr(hint, "__metadata__", ()))
    ]
    require.representable(request, inline=inline)
    return request


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of a flag before the words are parsed, None if it is not given."""
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
