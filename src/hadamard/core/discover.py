"""Find algorithms, suites, layer variants and remedies by name; only a chosen one is imported.

They are the modules of this package's folders, and plugins (see `core.plugins`).
"""

from __future__ import annotations

import importlib
from types import ModuleType

from hadamard.core import builtin, plugins
from hadamard.text import unknown

ALGORITHMS, REMEDIES = "hadamard.algos", "hadamard.plasticity"
SUITES, LAYERS = "hadamard.envs", "hadamard.layers"


def names(package: str, *, installed: bool = True) -> tuple[str, ...]:
    """Return the names of a package's modules, and of the plugins that add to it.

    Without ``installed``, plugins of installed packages are left out, which may not have been
    imported yet. Names that begin with _ are private.

    Examples:
        >>> names("hadamard.algos")
        ('dqn', 'mrq', 'ppo', 'pqn', 'simbav2')
    """
    return tuple(sorted({*builtin.names(package), *plugins.names(package, installed=installed)}))


def known(package: str, name: str) -> bool:
    """Tell whether there is a module or a plugin of this name, without importing it."""
    return builtin.has(package, name) or bool(plugins.called(package, name))


def find(package: str, name: str, kind: str) -> ModuleType:
    """Import a package's module or a plugin; an unknown name is an error with the nearest names."""
    own = builtin.has(package, name)
    others = plugins.called(package, name)
    places = [*([str(builtin.file_of(package, name))] if own else []), *(p.place for p in others)]
    if len(places) > 1:
        raise ValueError(
            f"several modules are the {kind} {name!r}, and none of them is used: "
            f"{' and '.join(places)}. Uninstall or rename one"
        )
    if own:
        return importlib.import_module(f"{package}.{name}")
    if others:
        return others[0].module
    raise ValueError(unknown(kind, name, names(package)))


def summary(package: str, name: str) -> str:
    """Return the first line of a module's docstring, without importing it; "" if there is none.

    Examples:
        >>> summary("hadamard.algos", "ppo")
        'PPO: clipped policy gradients with generalized advantages.'
        >>> summary("hadamard.layers", "hadamard")
        'Hadamard Representation: the product of two branches.'
    """
    if builtin.has(package, name):
        path = builtin.file_of(package, name)
        assert path is not None
        return builtin.summary(path, package)
    others = plugins.called(package, name)
    return others[0].summary() if others else ""


def title(package: str, name: str) -> str:
    """Return what papers call an algorithm or a remedy: the words before its summary's colon.

    A name without a module, such as that of a run made elsewhere, is returned as it is.

    Examples:
        >>> title("hadamard.algos", "mrq"), title("hadamard.plasticity", "redo")
        ('MR.Q', 'ReDo')
    """
    words, colon, _ = summary(package, name).partition(":")
    return words if colon else name
