"""Old names and what they are called now: settings, options, commands, checkpoints and modules.

Everything that was written or typed under an old name is read through these tables: a run's
config.json, packed runs, checkpoints, the command line and imports. Needs only the standard
library.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SETTINGS = {"algo.lambda_": "algo.q_lambda"}
"""Settings of a run, by their dotted names."""
SWITCHES = {"redo.enabled": "redo"}
"""Settings that turned a remedy on, and the remedy to name in the setting ``remedy`` instead."""
RETIRED = ("train.exact_resume",)
"""Settings that no longer exist; whatever their value, a run continues as it would have."""

OPTIONS = {"--normalise": "--normalize", "--import": "--plugin"}
"""Options of commands, other than a run's settings."""
VALUES = {
    "report": {
        "human_normalised": "human_normalized",
        "success_normalised": "success_normalized",
    },
    "reproduce": {"fig-human-normalised": "fig-human-normalized"},
}
"""Words on the command line by command: values of options, names of experiments."""
COMMANDS = {"analyse": "analyze"}

PARTS = {
    "agent.optimiser": "agent.optimizer",
    "agent.optimiser.actor": "agent.optimizer.actor",
    "agent.optimiser.critic": "agent.optimizer.critic",
    "agent.optimiser.temperature": "agent.optimizer.temperature",
    "agent.encoder_optimiser": "agent.encoder_optimizer",
    "agent.policy_optimiser": "agent.policy_optimizer",
    "agent.values_optimiser": "agent.values_optimizer",
    "agent.luck": "agent.sampling_random",
}
"""Parts of a checkpoint."""
STATE = {
    "agent.network": {
        "normaliser.mean": "normalizer.mean",
        "normaliser.variance": "normalizer.variance",
        "normaliser.count": "normalizer.count",
    },
}
"""Keys in the state of a part, which is under its new name here."""

IMPORTS = {"hadamard.core.config": {"RedoSpec": "hadamard.plasticity.redo.Config"}}
"""Public names that moved, by the module they were in."""

_FORMER = {new: old for old, new in SETTINGS.items()}


def settings(flat: Mapping[str, Any], *, warn: bool = False) -> dict[str, Any]:
    """Return settings by their present dotted names; ``warn`` of each old one.

    Examples:
        >>> settings({"algo.lambda_": 0.9, "redo.enabled": True, "redo.tau": 0.1})
        {'algo.q_lambda': 0.9, 'remedy': 'redo', 'redo.tau': 0.1}
        >>> settings({"redo.enabled": False, "redo.tau": 0.1})
        {'remedy': 'none'}
    """
    # The settings of a remedy that is not in use have no place any more.
    unused = tuple(f"{SWITCHES[name]}." for name in SWITCHES if flat.get(name) is False)
    present: dict[str, Any] = {}
    for name, value in flat.items():
        new = SETTINGS.get(name, name)
        if name in SWITCHES:
            new, value = "remedy", _remedy(name, value)
        elif name in RETIRED or name.startswith(unused):
            continue
        if warn and new != name:
            warnings.warn(f"the setting {name} is called {new} now", DeprecationWarning, 3)
        present[new] = value
    return present


def spec(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested settings of a config.json by their present names.

    Examples:
        >>> spec({"algo": {"lambda_": 0.9}, "redo": {"enabled": True, "tau": 0.1}})
        {'algo': {'q_lambda': 0.9}, 'remedy': 'redo', 'remedies': {'redo': {'tau': 0.1}}}
    """
    present: dict[str, Any] = {}
    for section, values in nested.items():
        if not isinstance(values, Mapping):
            present[section] = values
            continue
        switch = next((name for name in values if f"{section}.{name}" in SWITCHES), None)
        if switch is None:
            present[section] = {
                SETTINGS.get(f"{section}.{name}", f"{section}.{name}").partition(".")[2]: value
                for name, value in values.items()
                if f"{section}.{name}" not in RETIRED
            }
        else:
            remedy = _remedy(f"{section}.{switch}", values[switch])
            used = {name: value for name, value in values.items() if name != switch}
            present["remedy"] = remedy
            present["remedies"] = {} if remedy == "none" else {section: used}
    return present


def config(values: Any) -> Any:
    """Return what a config.json holds with its settings under their present names."""
    if isinstance(values, dict) and isinstance(values.get("spec"), dict):
        return {**values, "spec": spec(values["spec"])}
    return values


def former(name: str) -> str:
    """Return the first name of a setting, after which runs' folders are still called."""
    return _FORMER.get(name, name)


def checkpoint(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of a checkpoint's parts by their present names."""
    present = {PARTS.get(name, name): state for name, state in parts.items()}
    for name, keys in STATE.items():
        if isinstance(state := present.get(name), Mapping):
            present[name] = {keys.get(key, key): value for key, value in state.items()}
    return present


def words(command: str, line: Sequence[str]) -> list[str]:
    """Return a command's words by their present names, with a warning for each old one.

    Examples:
        >>> words("train", ["pqn", "--algo.q-lambda", "0.9"])
        ['pqn', '--algo.q-lambda', '0.9']
    """
    values = VALUES.get(command, {})
    present: list[str] = []
    for word in line:
        if not word.startswith("--"):
            new: list[str] | None = [values.get(word, word)]
        else:
            option, equals, value = word.partition("=")
            new = _option(option)
            if new is not None and equals:
                new = [*new[:-1], f"{new[-1]}={values.get(value, value)}"]
        if new is None:
            _warn(f"{word} is no longer an option, and is ignored")
        elif new != [word]:
            _warn(f"{word} is written {' '.join(new)} now")
        present += new or []
    return present


def command(name: str) -> str:
    """Return a command's present name, with a warning if it had another."""
    if name in COMMANDS:
        _warn(f"`hadamard {name}` is called `hadamard {COMMANDS[name]}` now")
    return COMMANDS.get(name, name)


def names_of(module: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``: it finds names that moved away, with a warning."""

    def moved(name: str) -> Any:
        place = IMPORTS[module].get(name)
        if place is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is {place} now", DeprecationWarning, stacklevel=2)
        home, _, attribute = place.rpartition(".")
        return getattr(importlib.import_module(home), attribute)

    return moved


def _remedy(switch: str, value: Any) -> Any:
    """Return the setting ``remedy`` for a switch; a value that is no bool is left to the checks."""
    if not isinstance(value, bool):
        return value
    return SWITCHES[switch] if value else "none"


def _option(option: str) -> list[str] | None:
    """Return the words for an option without its value; None for an option to be left out."""
    if option in OPTIONS:
        return [OPTIONS[option]]
    section, dot, name = option[2:].partition(".")
    name = name.replace("-", "_") if f"{section}.{name}" not in SETTINGS else name
    switched_off = name.startswith("no_")
    setting = f"{section}{dot}{name.removeprefix('no_')}"
    if setting in SWITCHES:
        return ["--remedy", "none" if switched_off else SWITCHES[setting]]
    if setting in RETIRED:
        return None
    if setting in SETTINGS:
        return [f"--{SETTINGS[setting].replace('_', '-')}"]
    return [option]


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=3)
