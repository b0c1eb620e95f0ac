"""What a module of the package's folders defines, and a plugin's module like it.

The comments of `envs/__init__.py`, `layers/__init__.py` and `plasticity/__init__.py` say what each
name is. Needs only the standard library.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hadamard.text import joined

RESERVED = (
    "algo", "device", "env", "fleet", "net", "none", "plugin", "remedies", "remedy", "run_dir",
    "seed", "seeds", "train",
)  # fmt: skip
"""Names that a remedy cannot have, because a run's settings have them."""


class PluginError(ValueError):
    """A plugin cannot be used; the message names its place and says why."""


@dataclass(frozen=True)
class Contract:
    """What a module of one of the package's folders defines."""

    kind: str
    names: tuple[str, ...]
    """The names that it must define."""
    told_by: tuple[str, ...]
    """A file that defines one of these belongs to this folder."""


CONTRACTS = {
    "hadamard.algos": Contract(
        "algorithm", ("Config", "NET", "ACTIONS", "ENV", "build"), ("NET", "ACTIONS", "ENV")
    ),
    "hadamard.envs": Contract("suite", ("tasks", "make"), ("tasks", "make")),
    "hadamard.plasticity": Contract("remedy", ("Config", "build"), ("Config",)),
    "hadamard.layers": Contract("layer variant", ("build",), ("build",)),
}
"""By folder, in the order in which a file's is decided. The folders are the entry points' groups,
too."""


def package_of(module: ModuleType, path: Path) -> str:
    """Return the folder whose files define what a module defines."""
    for package, contract in CONTRACTS.items():
        if any(hasattr(module, name) for name in contract.told_by):
            check(module, package, f"the plugin {path}")
            return package
    kinds = "; ".join(
        f"{_with_article(contract.kind)} {joined(contract.names, 'and')}"
        for contract in CONTRACTS.values()
    )
    raise PluginError(f"the plugin {path} defines nothing that hadamard uses: {kinds}")


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} defines"


def check(module: ModuleType, package: str, place: str) -> None:
    """Refuse a module without what the files of a folder define."""
    contract = CONTRACTS[package]
    if missing := [name for name in contract.names if not hasattr(module, name)]:
        raise PluginError(
            f"{place} lacks {joined(missing, 'and')}: {_with_article(contract.kind)} "
            f"{joined(contract.names, 'and')}"
        )
    for name in ("build", "tasks", "make"):
        if name in contract.names and not callable(getattr(module, name)):
            raise PluginError(f"{place}: {name} must be a function")
    if "Config" not in contract.names:
        return
    config: Any = module.Config
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise PluginError(f"{place}: Config must be a frozen dataclass of its settings")
    needed = "num_envs" if package == "hadamard.algos" else "check"
    if not hasattr(config, needed):
        what = "the setting num_envs" if needed == "num_envs" else "the method check"
        raise PluginError(f"{place}: its Config lacks {what}")
    actions = getattr(module, "ACTIONS", None)
    if package == "hadamard.algos" and actions not in ("discrete", "continuous"):
        raise PluginError(f"{place}: ACTIONS must be 'discrete' or 'continuous', got {actions!r}")
