"""Settings as people give them: by bare or dotted names, and in files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hadamard.core import discover, files, remedies, renamed, typed
from hadamard.core.config import RunSpec, flattened, overridden, to_dict
from hadamard.text import install, joined, unknown

FORMATS = (".yaml", ".yml", ".json")


def changed(spec: RunSpec[Any], changes: Mapping[str, Any]) -> RunSpec[Any]:
    """Return the spec with settings changed, by dotted names or by bare ones that only one has.

    Examples:
        >>> changed(RunSpec(algo=None), {"width": 64, "train.steps": "2000"}).net.width
        64
    """
    changes = renamed.settings(changes, warn=True)
    if "remedy" in changes:  # before its settings
        spec = overridden(spec, {"remedy": changes["remedy"]})
    result: RunSpec[Any] = overridden(spec, full_names(spec, changes))
    return result


def full_names(spec: RunSpec[Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their dotted names; one that is given under both names is an error."""
    named: dict[str, Any] = {}
    for name, value in changes.items():
        full = full_name(spec, name)
        if full in named:
            raise ValueError(f"the setting {full} is given twice: leave one of them out")
        named[full] = value
    return named


def full_name(spec: RunSpec[Any], name: str) -> str:
    """Return the dotted name of a setting that may be given without its section.

    Examples:
        >>> full_name(RunSpec(algo=None), "steps"), full_name(RunSpec(algo=None), "net.width")
        ('train.steps', 'net.width')
        >>> full_name(RunSpec(algo=None), "train.step")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: unknown setting 'train.step'; did you mean 'train.steps'...
    """
    known = flattened(to_dict(spec))
    if name in known or name.partition(".")[0] in discover.names(discover.REMEDIES):
        return name
    matches = [candidate for candidate in known if candidate.rpartition(".")[2] == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ValueError(f"the setting {name!r} may be {joined(matches, 'or')}: give its full name")
    raise ValueError(_unknown(name, known))


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    """Return an error that names settings like this one: of its section, or by their last words."""
    section, dot, _ = name.rpartition(".")
    like = [full for full in known if full.startswith(f"{section}.")] if dot else list(known)
    if not dot:  # compare bare names with bare names
        by_word = {full.rpartition(".")[2]: full for full in known}
        return unknown("setting", name, by_word)
    return unknown("setting", name, like or known)


class ConfigFile(NamedTuple):
    """What a file of settings holds."""

    algorithm: str | None
    """None where it names none."""
    settings: dict[str, Any]
    """By dotted names."""

    def named(self, algorithm: str | None, path: str | Path) -> str:
        """Return the algorithm that the file or its user names; they must not differ."""
        if algorithm is None and self.algorithm is None:
            raise ValueError(f"{path} names no algorithm: add `algorithm`, or name it yourself")
        if None not in (algorithm, self.algorithm) and algorithm != self.algorithm:
            raise ValueError(f"{path} is a configuration of {self.algorithm}, not of {algorithm}")
        return algorithm or self.algorithm or ""


def read(path: str | Path) -> ConfigFile:
    """Read a file of settings: YAML or JSON, nested or dotted, or a run's config.json.

    Of a run's config.json everything is taken but the folder.
    """
    path = Path(path)
    values = _parsed(path)
    algorithm = values.pop("algorithm", None)
    if algorithm is not None and not isinstance(algorithm, str):
        raise ValueError(f"{path}: algorithm must be a text, got {typed.shortened(algorithm)}")
    if isinstance(values.get("spec"), dict):
        settings = flattened(renamed.spec(values["spec"]))
        settings.pop("run_dir", None)
    else:
        settings = renamed.settings(flattened(values), warn=True)
    chosen = settings.get("remedy", "none")
    if isinstance(chosen, str):
        for name in settings:
            section = name.partition(".")[0]
            remedy = section in discover.names(discover.REMEDIES)
            if remedy and section not in remedies.chosen(chosen):
                raise ValueError(
                    f"{path} sets {name}, and its remedy is {chosen}: add `remedy: {section}`"
                )
    return ConfigFile(algorithm, settings)


def _parsed(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'config.json'}")
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a file of settings is named {joined(FORMATS, 'or')}, got {path}")
    try:
        with open(path, "rb") as file:
            data = file.read(files.SMALL + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > files.SMALL:
        raise ValueError(f"{path} has more than {files.SMALL:,} bytes: it is no file of settings")
    try:
        text = data.decode()
        values = json.loads(text) if path.suffix.lower() == ".json" else _yaml(text)
        files.require_shallow(values)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no valid file of settings: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings by name, got {typed.shortened(values)}")
    return values


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            f"a YAML file needs PyYAML: {install('train')}, or write it as JSON"
        ) from error
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    _require_text_names(values)
    return values


def _require_text_names(values: Any) -> None:
    """Refuse names that YAML reads as something else, such as ``on`` or ``1``."""
    for name, value in values.items() if isinstance(values, dict) else ():
        if not isinstance(name, str):
            raise ValueError(f"a name must be a text, got {name!r}: put it in quotation marks")
        _require_text_names(value)
