"""Shared by the commands: parsing of options, and errors for the user."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hadamard.core import require

WRONG = 2
"""Exit code of a command whose options or run folders cannot be used."""


class UserError(Exception):
    """A message for the person at the terminal, without a traceback."""


PLUGIN_HELP = (
    "A Python file with an algorithm, a suite, a layer variant or a remedy of your own, called by "
    "the file's name; or the name of a module that registers tasks with Gymnasium "
    "(gym/MODULE:ID). Repeat the option for several."
)


class Named(NamedTuple):
    """What of the user's own code a command names."""

    files: list[str]
    """Plugins."""
    modules: list[str]
    """Modules that register tasks with Gymnasium."""


def named_and_rest(words: Sequence[str]) -> tuple[Named, list[str]]:
    """Divide a command's words into what stands after --plugin, and the others.

    The module in --env gym/MODULE:ID is named by that.

    Examples:
        >>> named_and_rest(["dqn", "--plugin", "maxout.py", "--env=gym/my_tasks:Grid-v0"])
        (Named(files=['maxout.py'], modules=['my_tasks']), ['dqn', '--env=gym/my_tasks:Grid-v0'])
    """
    files: list[str] = []
    modules: list[str] = []
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        option, equals, value = word.partition("=")
        if option != "--plugin":
            rest.append(word)
            continue
        name = value if equals else next(remaining, None)
        if name is None:
            raise UserError("--plugin needs a file or the name of a module after it")
        if _is_module(name):
            modules.append(name)
        else:
            files.append(name)
    for env in f"{value_of('--env', rest)},{value_of('--envs', rest)}".split(","):
        modules += [env.partition("/")[2].rpartition(":")[0]] if ":" in env else []
    return Named(files, modules), rest


def _is_module(name: str) -> bool:
    """Tell whether a plugin is named as a module and not as a file; refuse what is neither."""
    parts = name.split(".")
    if parts[-1] == "py" or not all(part.isidentifier() for part in parts) or Path(name).is_file():
        return False
    if importlib.util.find_spec(parts[0]) is None:
        raise UserError(
            f"--plugin {name}: there is neither such a file nor a module {parts[0]}. Name a file "
            "with its .py, or put the module's folder on the path: PYTHONPATH=FOLDER hadamard ..."
        )
    return True


def allow_modules(modules: Sequence[str]) -> None:
    """Allow the modules that the user names to be imported, here and in worker processes."""
    if modules:
        from hadamard.envs import named_modules

        for module in modules:
            named_modules.allow(module)


def with_fields(kind: Any, fields: Sequence[tuple[str, Any, Any]]) -> Any:
    """Return a class of options with more of them: name, type and default of each."""
    return dataclasses.make_dataclass("Options", fields, bases=(kind,), frozen=True)


def plugin_field() -> tuple[str, Any, Any]:
    """Return the option --plugin for the help; `named_and_rest` has taken its values before."""
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
    option = "--plugin FILE|MODULE"
    print(f"usage: {prog} [{option}]\n\n{summary}\n\n{option}\n  {PLUGIN_HELP}")
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
