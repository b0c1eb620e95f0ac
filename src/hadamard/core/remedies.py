"""Remedies of a run: what its settings ``remedy`` and ``remedies`` say.

A remedy is a module of `hadamard.plasticity`: its ``Config`` holds its settings, and its ``build``
makes what is called after every update. A setting is known by its remedy's name and its own, such
as ``redo.tau``; so is its option on the command line, ``--redo.tau``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hadamard.core import discover, typed
from hadamard.text import unknown

Settings = Mapping[str, Mapping[str, Any]]


def chosen(remedy: str) -> tuple[str, ...]:
    """Return the names in the setting ``remedy``.

    Examples:
        >>> chosen("none"), chosen("redo")
        ((), ('redo',))
    """
    return () if remedy == "none" else tuple(remedy.split(","))


def kind(name: str) -> Any:
    """Return a remedy's Config class."""
    return discover.find(discover.REMEDIES, name, "remedy").Config


def configs(remedy: str, settings: Settings) -> dict[str, Any]:
    """Return the Config of each chosen remedy; a setting that is not given has its default."""
    names = chosen(remedy)
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"--remedy {remedy} names {twice[0]} twice: leave one of them out")
    for name in settings:
        if name not in names:
            raise ValueError(not_chosen(name, next(iter(settings[name]), "")))
    _check_together(names)
    return {name: _config(name, settings.get(name, {})) for name in names}


def _check_together(names: Sequence[str]) -> None:
    """Refuse remedies of which one excludes another; each says so in its module's EXCLUDES."""
    modules = {name: discover.find(discover.REMEDIES, name, "remedy") for name in names}
    for name, module in modules.items():
        for other, reason in getattr(module, "EXCLUDES", {}).items():
            if other in modules:
                raise ValueError(
                    f"--remedy {','.join(names)}: {name} and {other} exclude each other: "
                    f"{reason}. Leave one of them out"
                )


def filled(remedy: str, settings: Settings) -> dict[str, dict[str, Any]]:
    """Return all settings of each chosen remedy, those that are not given at their defaults.

    Examples:
        >>> filled("redo", {"redo": {"tau": 0.1}})
        {'redo': {'tau': 0.1, 'period': 1000}}
    """
    chosen_configs = configs(remedy, settings)
    return {name: dataclasses.asdict(config) for name, config in chosen_configs.items()}


def checked(name: str, setting: str, value: Any) -> Any:
    """Return the value of one setting of a remedy as it was given, with the type it must have."""
    hints = typed.fields(kind(name))
    if setting not in hints:
        raise ValueError(unknown(f"setting of {name}", setting, hints))
    return typed.setting(value, hints[setting], f"{name}.{setting}")


def not_chosen(name: str, setting: str) -> str:
    """Return the error for a setting whose remedy is not chosen."""
    option = f"--{name}.{setting}".replace("_", "-")
    return (
        f"{option} is a setting of the remedy {name}, which is not "
        f"chosen: add --remedy {name}, or leave the setting out"
    )


def _config(name: str, settings: Mapping[str, Any]) -> Any:
    config = kind(name)
    hints = typed.fields(config)
    for setting in settings:
        if setting not in hints:
            raise ValueError(unknown(f"setting of {name}", setting, hints))
    values = {
        setting: typed.checked(value, hints[setting], f"{name}.{setting}")
        for setting, value in settings.items()
    }
    return config(**values)
