"""What a run records of the plugins it was trained with, and whether they are the same now.

In config.json, ``plugins`` has an entry for each: its file's name and checksum, and the package and
version if it was installed. ``earlier`` lists the checksums of those that it was replaced by, with
the step at which the run went on with another. Nothing is imported because a run names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hadamard.core import builtin, plugins, remedies
from hadamard.core.contracts import CONTRACTS
from hadamard.core.discover import ALGORITHMS, LAYERS, REMEDIES, SUITES
from hadamard.core.files import RunError
from hadamard.core.plugins import Plugin
from hadamard.core.typed import checked

Entry = Mapping[str, Any]
_KEPT = ("sha256", "package")
"""What makes two plugins of one name the same."""
_SHORT = 12
"""Digits of a checksum that messages compare."""


def used(algorithm: str, spec: Mapping[str, Any]) -> dict[str, Plugin]:
    """Return the plugins that a run with these settings is trained with; none is imported."""
    net = spec.get("net")
    layer = str(net.get("layer")) if isinstance(net, Mapping) else ""  # refused by its reader
    suite = plugins.name_of(SUITES, str(spec.get("env")).partition("/")[0])
    names = [(ALGORITHMS, algorithm), (SUITES, suite), (LAYERS, layer)]
    names += [(REMEDIES, name) for name in remedies.chosen(str(spec.get("remedy") or "none"))]
    return {
        plugins.key_of(package, name): plugins.called(package, name)[0]
        for package, name in names
        if not builtin.has(package, name) and plugins.called(package, name)
    }


def recorded(config: Mapping[str, Any]) -> dict[str, Entry]:
    """Return what a run's config.json says of its plugins."""
    entries: dict[str, Entry] = checked(
        config.get("plugins", {}), dict[str, dict[str, Any]], "plugins"
    )
    for key, entry in entries.items():
        for name in ("file", "sha256"):
            checked(entry.get(name), str, f"plugins.{key}.{name}")
        checked(entry.get("package"), str | None, f"plugins.{key}.package")
        for index, earlier in enumerate(_earlier(key, entry)):
            checked(earlier.get("sha256"), str, f"plugins.{key}.earlier[{index}].sha256")
    return entries


def of_run(algorithm: str, spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a new run records of its plugins."""
    return {key: _entry(plugin) for key, plugin in used(algorithm, spec).items()}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plugins as settings of a run, which each checkpoint repeats."""
    entries = recorded(config)
    checksums = {f"plugins.{key}": entry["sha256"] for key, entry in entries.items()}
    return {"plugins": sorted(entries), **checksums}


def at_present(saved: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's settings with the plugins by which the run replaced its own since."""
    present = dict(saved)
    for key, entry in recorded(config).items():
        before = {earlier["sha256"] for earlier in _earlier(key, entry)}
        if saved.get(f"plugins.{key}") in before:
            present[f"plugins.{key}"] = entry["sha256"]
    return present


def require(config: Mapping[str, Any], run: Path) -> None:
    """Refuse to open a run without its plugins, or with others that it does not record."""
    there = used(str(config.get("algorithm")), config.get("spec") or {})
    entries = recorded(config)
    for key, entry in entries.items():
        if key not in there:
            raise RunError(_missing(run, key, entry))
    for key, plugin in there.items():
        if key not in entries:
            raise RunError(
                f"{run} names {key}, which is the plugin {plugin.place} here, and does not record "
                "that it was trained with one: it was made by another version, or changed"
            )


def changes(config: Mapping[str, Any], run: Path) -> list[str]:
    """Say which of a run's plugins are not those that it was trained with."""
    there = used(str(config.get("algorithm")), config.get("spec") or {})
    lines = []
    for key, entry in recorded(config).items():
        now = _entry(there[key])
        if any(name in now and name in entry and now[name] != entry[name] for name in _KEPT):
            lines.append(
                f"the plugin {there[key].place} is not the one that {run} was trained with "
                f"({_words(entry)} there, {_words(now)} here)"
            )
    return lines


def replaced(config: Mapping[str, Any], step: int) -> dict[str, Entry]:
    """Return what a run records from a step on, at which it goes on with the plugins of now."""
    there = used(str(config.get("algorithm")), config.get("spec") or {})
    entries = recorded(config)
    for key, entry in entries.items():
        now = _entry(there[key])
        if any(now.get(name) != entry.get(name) for name in _KEPT):
            before = {name: entry[name] for name in _KEPT if name in entry}
            now["earlier"] = [*_earlier(key, entry), {**before, "until_step": step}]
            entries[key] = now
    return entries


def differences(config: Mapping[str, Any], algorithm: str, spec: Mapping[str, Any]) -> list[str]:
    """List the plugins in which a run differs from one that would be started now."""
    old, new = recorded(config), of_run(algorithm, spec)
    return [
        f"  plugin {key}: {_words(old.get(key))} there, {_words(new.get(key))} here"
        for key in sorted({*old, *new})
        if any((old.get(key) or {}).get(name) != (new.get(key) or {}).get(name) for name in _KEPT)
    ]


def described(entries: Mapping[str, Entry]) -> Iterable[str]:
    """Write a run's plugins in words."""
    return (f"{key} ({_words(entry)})" for key, entry in sorted(entries.items()))


def _entry(plugin: Plugin) -> dict[str, Any]:
    name = plugin.file.name if plugin.file is not None else plugin.name
    release = {} if plugin.release is None else {"package": plugin.release}
    return {"file": name, "sha256": plugin.sha256, **release}


def _earlier(key: str, entry: Entry) -> list[Entry]:
    earlier: list[Entry] = checked(
        entry.get("earlier", []), list[dict[str, Any]], f"plugins.{key}.earlier"
    )
    return earlier


def _words(entry: Entry | None) -> str:
    if entry is None:
        return "none"
    package = f"{entry['package']}, " if entry.get("package") else ""
    return f"{package}sha256 {entry['sha256'][:_SHORT]}"


def _missing(run: Path, key: str, entry: Entry) -> str:
    folder, _, name = key.partition("/")
    contract = CONTRACTS.get(f"hadamard.{folder}")
    kind = contract.kind if contract is not None else folder
    if entry.get("package"):
        return (
            f"{run} was trained with the {kind} {name} of the package {entry['package']} "
            f"({entry['file']}, sha256 {entry['sha256']}), which is not installed: install it"
        )
    return (
        f"{run} was trained with the plugin {entry['file']} ({kind} {name}, sha256 "
        f"{entry['sha256']}), and files are not imported because a run names them: name it with "
        f"--plugin {entry['file']}, or in Python with hadamard.load_plugin"
    )
