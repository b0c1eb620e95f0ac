"""Plugins for tests: the files of the tutorials, and packages that declare entry points."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.pages import DOCS, blocks

TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
NAMES = ("double_dqn", "grid_world", "maxout", "weight_noise")


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by the name in their first line."""
    shown = [text for language, text in blocks(page) if language == "python"]
    named = [(re.match(r"# (\w+\.py)\n", text), text) for text in shown]
    return {match[1]: text for match, text in named if match}


def write_plugin(folder: Path, name: str) -> Path:
    """Write the plugin of a tutorial to a folder."""
    texts = {file: text for page in TUTORIALS for file, text in files_of(page).items()}
    path = folder / f"{name}.py"
    path.write_text(texts[path.name])
    return path


def write_package(folder: Path, group: str, modules: dict[str, str], name: str = "extras") -> Path:
    """Write a package as pip installs it, whose modules are entry points of a group.

    Importing any of them leaves a file ``imported`` in the folder.
    """
    package = folder / name
    package.mkdir(parents=True)
    mark = f"import pathlib; pathlib.Path({str(folder / 'imported')!r}).touch()\n"
    (package / "__init__.py").write_text(mark)
    for module, text in modules.items():
        (package / f"{module}.py").write_text(text)
    entries = "\n".join(f"{module} = {name}.{module}" for module in modules)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
    return folder


def environment_with(folder: Path) -> dict[str, str]:
    """Return the variables of a process that finds the packages in a folder."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
