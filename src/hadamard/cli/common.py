"""Shared by the commands: parsing of options, and errors for the user."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path
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
    _require_named_paths(request, words)
    # Sections that the command line spells without a prefix.
    hints = typing.get_type_hints(type(request), include_extras=True)
    inline = [
        name
        for name, hint in hints.items()
        if any(getattr(mark, "name", None) == "" for mark in getattr(hint, "__metadata__", ()))
    ]
    require.representable(request, inline=inline)
    return request


def takes_no_words(words: Sequence[str], prog: str, summary: str) -> bool:
    """Tell whether to go on: print the help of a command without options, refuse any other word."""
    if not words:
        return True
    if words[0] not in ("-h", "--help"):
        raise UserError(f"`{prog}` takes no options, got {words[0]!r}")
    print(f"usage: {prog}\n\n{summary}")
    return False


def _require_named_paths(request: Any, words: Sequence[str]) -> None:
    """Refuse an empty word for a path, as an unset variable leaves it: Python reads it as "."."""
    if not any(word == "" or word.endswith("=") for word in words):
        return
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if dataclasses.is_dataclass(value):
            _require_named_paths(value, words)
        paths = value if isinstance(value, tuple) else (value,)
        if any(isinstance(path, Path) and path == Path() for path in paths):
            raise UserError(f"--{field.name.replace('_', '-')} is empty: name a file or a folder")


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of a flag before the words are parsed, None if it is not given."""
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def with_modules_named(words: Sequence[str]) -> list[str]:
    """Allow the modules that the user names to be imported; return the words without --import.

    He names them with --import MODULE, or with --env gym/MODULE:ID.
    """
    rest: list[str] = []
    modules: list[str] = []
    following = iter(words)
    for word in following:
        name, equals, value = word.partition("=")
        if name != "--import":
            rest.append(word)
        elif value := value if equals else next(following, ""):
            modules.append(value)
        else:
            raise UserError("--import needs the name of a module, such as my_tasks")
    for env in f"{value_of('--env', rest)},{value_of('--envs', rest)}".split(","):
        modules += [env.partition("/")[2].rpartition(":")[0]] if ":" in env else []
    if modules:
        from hadamard.envs import named_modules

        for module in modules:
            named_modules.allow(module)
    return rest
