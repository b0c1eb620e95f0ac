"""Find algorithms and remedies by the names of their modules; only a chosen one is imported."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from hadamard.text import unknown

PARSING = threading.Lock()
"""Held while a source file is parsed: Python 3.11's parser fails in several threads at once."""
ALGORITHMS, REMEDIES = "hadamard.algos", "hadamard.plasticity"


def names(package: str) -> tuple[str, ...]:
    """Return the names of a package's modules; those that begin with _ are private.

    Examples:
        >>> names("hadamard.algos")
        ('dqn', 'mrq', 'ppo', 'pqn', 'simbav2')
    """
    modules = pkgutil.iter_modules(_folders(package))
    return tuple(sorted(info.name for info in modules if not info.name.startswith("_")))


def find(package: str, name: str, kind: str) -> ModuleType:
    """Import a package's module; an unknown name is an error that lists the nearest names."""
    known = names(package)
    if name not in known:
        raise ValueError(unknown(kind, name, known))
    return importlib.import_module(f"{package}.{name}")


def summary(package: str, name: str) -> str:
    """Return the first line of a module's docstring, without importing it; "" if there is none.

    Examples:
        >>> summary("hadamard.algos", "ppo")
        'PPO: clipped policy gradients with generalized advantages.'
    """
    for folder in _folders(package):
        path = Path(folder, f"{name}.py")
        if path.is_file():
            return _first_line(path)
    return ""


def title(package: str, name: str) -> str:
    """Return what papers call an algorithm or a remedy: the words before its summary's colon.

    A name without a module, such as that of a run made elsewhere, is returned as it is.

    Examples:
        >>> title("hadamard.algos", "mrq"), title("hadamard.plasticity", "redo")
        ('MR.Q', 'ReDo')
    """
    words, colon, _ = summary(package, name).partition(":")
    return words if colon else name


@functools.cache
def _first_line(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    with PARSING:
        docstring = ast.get_docstring(ast.parse(text)) or ""
    return docstring.partition("\n")[0]


def _folders(package: str) -> Sequence[str]:
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec is not None else []
