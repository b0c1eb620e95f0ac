"""Shared by the commands: parsing of options, and errors for the user."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hadamard.core import require

WRONG = 2
"""Exit code of a command whose options or run folders cannot be used."""


class UserError(Exception):
    """A message for the person at the terminal, without a traceback."""


PLUGIN_HELP = (
    "A Python file with an algorithm, a suite, a layer variant or a remedy of your own, called by "
    "the file's name. Repeat the option for several."
)


def plugins_and_rest(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide a command's words into the files after --plugin, and the others.

    Examples:
        >>> plugins_and_rest(["dqn", "--plugin", "maxout.py", "--seed", "1"])
        (['maxout.py'], ['dqn', '--seed', '1'])
    """
    files: list[str] = []
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        option, equals, value = word.partition("=")
        if option != "--plugin":
            rest.append(word)
            continue
        file = value if equals else next(remaining, None)
        if file is None:
            raise UserError("--plugin needs a file after it")
        files.append(file)
    return files, rest


def with_fields(kind: Any, fields: Sequence[tuple[str, Any, Any]]) -> Any:
    """Return a class of options with more of them: name, type and default of each."""
    return dataclasses.make_dataclass("Options", fields, bases=(kind,), frozen=True)


def plugin_field() -> tuple[str, Any, Any]:
    """Return the option --plugin for the help; `plugins_and_rest` has taken its files before."""
    import tyro

    several = typing.Annotated[
        tuple[Path, ...], tyro.conf.UseAppendAction, tyro.conf.arg(help=PLUGIN_HELP)
    ]
    return "plugin", several, ()


def parse(
    kind: Any, words: Sequence[str], prog: str, *, plugins: bool = True, **options: Any
) -> Any:
    """Return a dataclass filled from a command's words; ``--help`` prints its fields and exits.

    With ``plugins`` the help also has the option --plugin.
    """
    import tyro

    if plugins:
        options.setdefault("description", inspect.getdoc(kind))
        kind = with_fields(kind, [plugin_field()])
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
    """Tell whether to go on: print the help of a command without words, refuse any other word."""
    if not words:
        return True
    if words[0] not in ("-h", "--help"):
        raise UserError(f"`{prog}` takes no options but --plugin, got {words[0]!r}")
    print(f"usage: {prog} [--plugin FILE]\n\n{summary}\n\n--plugin FILE\n  {PLUGIN_HELP}")
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
