"""Plugins: algorithms, suites, layer variants and remedies from outside of this package.

A plugin's module is what a file of the folder is in the package: it defines the same names and is
called by its own name. There are two kinds:

- A file that the user names, with ``--plugin FILE`` or `load_plugin`. It is imported at once.
- A module of an installed package, which declares it as an entry point of the group
  ``hadamard.algos``, ``hadamard.envs``, ``hadamard.layers`` or ``hadamard.plasticity``. It is
  imported when its name is used.

Needs only the standard library.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import json
import linecache
import os
import stat
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from hadamard.core import builtin
from hadamard.core.contracts import CONTRACTS, RESERVED, check, package_of
from hadamard.core.contracts import PluginError as PluginError
from hadamard.core.files import flags

MOST_BYTES = 2**20
"""Bytes that a plugin's file has at most."""


@dataclass(eq=False)
class Plugin:
    """An algorithm, a suite, a layer variant or a remedy from outside of this package."""

    package: str
    """The folder that it adds to, such as ``hadamard.algos``."""
    name: str
    file: Path | None
    """None if an installed module has no file."""
    entry: metadata.EntryPoint | None = None
    """How an installed package declares it; None if it is a file."""
    content: bytes | None = None
    """What the file held when it was loaded."""
    loaded: ModuleType | None = None

    @property
    def key(self) -> str:
        """What a run's config.json calls it."""
        return key_of(self.package, self.name)

    @property
    def release(self) -> str | None:
        """The name and version of the installed package; None of a file."""
        if self.entry is None or self.entry.dist is None:
            return None
        return f"{self.entry.dist.name} {self.entry.dist.version}"

    @property
    def place(self) -> str:
        """Where it is."""
        if self.entry is None:
            return str(self.file)
        return f"{self.entry.value} of the installed package {self.release or 'without a name'}"

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum of its file."""
        content = self.content
        if content is None:
            content = self.file.read_bytes() if self.file is not None else b""
        return hashlib.sha256(content).hexdigest()

    @property
    def module(self) -> ModuleType:
        """Its module, which is imported now if it is installed and was not imported yet."""
        if self.loaded is None:
            assert self.entry is not None
            if self.entry.attr:
                raise PluginError(
                    f"{self.place} is no module: the entry point {self.name} must name one"
                )
            try:
                module = importlib.import_module(self.entry.module)
            except (Exception, SystemExit) as error:
                raise PluginError(
                    f"{self.place} fails on import, {_cause(error, self.file)}"
                ) from error
            check(module, self.package, self.place)
            self.loaded = module
        return self.loaded

    def summary(self) -> str:
        """Return its one-line description, without importing it."""
        if self.loaded is not None:
            described = self.loaded.build if self.package == "hadamard.layers" else self.loaded
            return (described.__doc__ or "").strip().partition("\n")[0]
        try:
            return builtin.summary(self.file, self.package) if self.file is not None else ""
        except (OSError, ValueError, SyntaxError):
            return ""


_loaded: dict[tuple[str, str], Plugin] = {}
"""The files that were named, by folder and name."""


def key_of(package: str, name: str) -> str:
    """Return what a run's config.json calls a plugin.

    Examples:
        >>> key_of("hadamard.algos", "double_dqn")
        'algos/double_dqn'
    """
    return f"{package.rpartition('.')[2]}/{name}"


def name_of(package: str, name: str) -> str:
    """Return a name as its module has it: no dashes, and suites in lower case.

    Examples:
        >>> name_of("hadamard.envs", "Grid-World")
        'grid_world'
    """
    name = name.replace("-", "_")
    return name.lower() if package == "hadamard.envs" else name


def names(package: str, *, installed: bool = True) -> list[str]:
    """Return the names of the plugins for a folder; with ``installed``, also of packages."""
    files = [plugin.name for plugin in _loaded.values() if plugin.package == package]
    return [*files, *(_installed().get(package, {}) if installed else ())]


def called(package: str, name: str) -> list[Plugin]:
    """Return the plugins with a name, of which there should be one at most; none is imported."""
    files = [_loaded[package, name]] if (package, name) in _loaded else []
    return [*files, *_installed().get(package, {}).get(name, ())]


def load_plugin(plugin: str | os.PathLike[str] | ModuleType) -> ModuleType:
    """Make the algorithm, suite, layer variant or remedy in a file known by the file's name.

    Its worker processes load the same text. A file that has changed since is loaded anew.

    Args:
        plugin: The file, or a module that was imported from one.

    Returns:
        The file's module.

    Raises:
        PluginError: It is missing, not Python, fails on import, lacks a name that such a file
            defines, or its name is taken.
    """
    module = None
    if isinstance(plugin, ModuleType):
        if not getattr(plugin, "__file__", None):
            raise PluginError(
                f"the module {plugin.__name__} has no file: write it to one, which worker "
                "processes can read"
            )
        module, plugin = plugin, Path(str(plugin.__file__))
    path = Path(os.path.abspath(plugin))
    return _load(path, _read(path, os.fspath(plugin)), module).module


@contextmanager
def named(paths: Iterable[str]) -> Iterator[None]:
    """Load the files that a command names; they are known until it ends."""
    before, seen = dict(_loaded), dict[str, str]()
    try:
        for path in paths:
            if (target := os.path.realpath(path)) in seen:
                raise PluginError(f"--plugin names {path} twice: leave one of them out")
            seen[target] = path
            load_plugin(path)
        yield
    finally:
        _loaded.clear()
        _loaded.update(before)


def to_text(package: str | None = None, name: str | None = None) -> str:
    """Return the files that are loaded as text, for another process; or one of them alone."""
    chosen = [
        [str(plugin.file), plugin.content.decode("latin-1")]
        for key, plugin in _loaded.items()
        if plugin.content is not None and (package is None or key == (package, name))
    ]
    return json.dumps(chosen) if chosen else ""


def load_text(text: str) -> None:
    """Load what another process gave `to_text`."""
    for path, content in json.loads(text or "[]"):
        _load(Path(path), content.encode("latin-1"), None)


def _read(path: Path, name: str) -> bytes:
    """Return what a file holds; refuse what cannot be a plugin's."""
    if not name:
        raise PluginError("--plugin is empty: name a file")
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer.
        with open(os.open(path, flags("O_RDONLY", "O_NONBLOCK", "O_BINARY")), "rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_BYTES + 1) if is_file else b""
    except FileNotFoundError:
        raise PluginError(f"the plugin {name} is missing: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PluginError(f"the plugin {name} cannot be read: {reason}") from None
    if not is_file:
        raise PluginError(f"the plugin {name} is not a file: name a file of Python code")
    if path.suffix != ".py" or not path.stem.isidentifier() or path.stem.startswith("_"):
        raise PluginError(
            f"the plugin {name} needs another name: its file's name, letters, digits and _ before "
            ".py, is what it is called by"
        )
    if len(content) > MOST_BYTES:
        raise PluginError(f"the plugin {name} has more than {MOST_BYTES:,} bytes")
    return content


def _load(path: Path, content: bytes, module: ModuleType | None) -> Plugin:
    earlier = next((plugin for plugin in _loaded.values() if plugin.file == path), None)
    if earlier is not None and earlier.content == content and module in (None, earlier.loaded):
        return earlier
    others = [plugin for plugin in _loaded.values() if plugin is not earlier]
    for other in others:
        if other.file is not None and other.file.stem == path.stem:
            raise PluginError(f"two plugins are called {path.stem}: {other.file} and {path}")
    module_name = f"hadamard_plugin_{path.stem}"
    before = sys.modules.pop(module_name, None)
    try:
        module = module or _executed(content, path, module_name)
        package = package_of(module, path)
        plugin = Plugin(package, name_of(package, path.stem), path, content=content, loaded=module)
        _refuse_taken(plugin)
    except BaseException:
        sys.modules.pop(module_name, None)
        if before is not None:
            sys.modules[module_name] = before
        raise
    if earlier is not None:
        del _loaded[earlier.package, earlier.name]
    _loaded[package, plugin.name] = plugin
    return plugin


def _executed(content: bytes, path: Path, name: str) -> ModuleType:
    """Run a file's code as a module."""
    try:
        source = importlib.util.decode_source(content)
        code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise PluginError(
            f"the plugin {path} is not Python, line {error.lineno or 1}: {error.msg}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PluginError(f"the plugin {path} is not Python: {error}") from None
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    # Tracebacks and help texts show the text that runs, also where the file has changed since or
    # is on another machine.
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        raise PluginError(f"the plugin {path} fails on import, {_cause(error, path)}") from error
    return module


def _cause(error: BaseException, file: Path | None) -> str:
    """Say where a module failed while it was imported, and why."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    place = f"{file}, line {lines[-1]}: " if lines else ""
    reason = str(error).strip().partition("\n")[0]
    return f"{place}{type(error).__name__}{f': {reason}' if reason else ''}"


def _refuse_taken(plugin: Plugin) -> None:
    """Refuse a name that something else has."""
    kind = CONTRACTS[plugin.package].kind
    if plugin.package == "hadamard.plasticity" and plugin.name in RESERVED:
        raise PluginError(
            f"the plugin {plugin.file} needs another name: {plugin.name} is a setting of every run"
        )
    installed = _installed().get(plugin.package, {}).get(plugin.name, [])
    places = [other.place for other in installed]
    if builtin.has(plugin.package, plugin.name):
        places.insert(0, str(builtin.file_of(plugin.package, plugin.name)))
    if places:
        raise PluginError(
            f"the {kind} {plugin.name} is there already: {places[0]} and {plugin.file}; give your "
            "file another name"
        )


# Installed packages


def _installed() -> Mapping[str, Mapping[str, list[Plugin]]]:
    """Return the plugins of installed packages by folder and name."""
    return _entry_points(tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _entry_points(_path: tuple[str, ...]) -> Mapping[str, Mapping[str, list[Plugin]]]:
    """Read what the packages on the path declare; none is imported."""
    found: dict[str, dict[str, list[Plugin]]] = {package: {} for package in CONTRACTS}
    for package, by_name in found.items():
        for entry in metadata.entry_points(group=package):
            name = name_of(package, entry.name)
            taken = package == "hadamard.plasticity" and name in RESERVED
            if name.isidentifier() and not name.startswith("_") and not taken:
                plugin = Plugin(package, name, _file_of(entry.module), entry)
                by_name.setdefault(name, []).append(plugin)
    return found


def _file_of(module: str) -> Path | None:
    """Return a module's file, without importing it or the packages it is in."""
    name, path, spec = "", None, None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        specs = (find(name, path) for find in finders if find is not None)
        spec = next((found for found in specs if found is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
