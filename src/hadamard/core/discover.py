"""The folder is the registry: a module is found by its name, and imported only when named."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from types import ModuleType


def names(package: str) -> tuple[str, ...]:
    """Return the modules of a package that are there to be chosen.

    Examples:
        >>> names("hadamard.algos")
        ('dqn', 'mrq', 'ppo', 'pqn', 'simbav2')
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None
    found = pkgutil.iter_modules(spec.submodule_search_locations)
    return tuple(sorted(info.name for info in found))


def find(package: str, name: str, what: str) -> ModuleType:
    """Import a package's module by name; an unknown name gets the nearest ones."""
    known = names(package)
    if name not in known:
        raise ValueError(unknown(what, name, known))
    return importlib.import_module(f"{package}.{name}")


def unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    """Say that a name is not known, which ones are near, and which there are."""
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"unknown {what} {name!r}{hint} Known: {', '.join(known)}"
