"""The modules of this package's folders, read without importing them. Only standard library."""

from __future__ import annotations

import ast
import functools
import importlib.util
import pkgutil
import threading
from collections.abc import Sequence
from pathlib import Path

_DEFINES = {"hadamard.layers": "build", "hadamard.envs": "make"}
"""The function by which a variant or a suite is told from the parts that lie beside it."""

_PARSING = threading.Lock()
"""Held while a source file is parsed: Python 3.11's parser fails in several threads at once."""


def names(package: str) -> list[str]:
    """Return the names of a folder's modules; those that begin with _ are private."""
    return list(_names_in(package, tuple(_folders(package))))


@functools.cache
def _names_in(package: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in these folders, which are listed once: settings are checked by names."""
    modules = pkgutil.iter_modules(folders)
    return tuple(sorted(info.name for info in modules if has(package, info.name)))


def has(package: str, name: str) -> bool:
    """Tell whether a folder has a module of this name."""
    path = file_of(package, name)
    if path is None or name.startswith("_"):
        return False
    function = _DEFINES.get(package)
    return function is None or docstring(path, function) is not None


def file_of(package: str, name: str) -> Path | None:
    """Return a module's file; None if there is none."""
    if not name.isidentifier():
        return None
    paths = (Path(folder, f"{name}.py") for folder in _folders(package))
    return next((path for path in paths if path.is_file()), None)


def summary(path: Path, package: str) -> str:
    """Return the first line of a file's docstring; of a layer variant, its function's."""
    function = "build" if package == "hadamard.layers" else ""
    return docstring(path, function) or ""


@functools.cache
def docstring(path: Path, function: str = "") -> str | None:
    """Return the first line of a docstring: a file's, or that of a function in it.

    None if there is no such function.
    """
    text = path.read_text(encoding="utf-8")
    with _PARSING:
        tree = ast.parse(text)
    nodes: list[ast.Module | ast.FunctionDef] = [tree]
    if function:
        nodes = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
    return (ast.get_docstring(nodes[-1]) or "").partition("\n")[0] if nodes else None


def _folders(package: str) -> Sequence[str]:
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec is not None else []
