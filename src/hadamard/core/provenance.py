"""What a run was made with: versions of packages, and the commit. Only standard library."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = (
    "hadamard-rl",
    "torch",
    "numpy",
    "minatar",
    "ale-py",
    "gymnasium",
    "mujoco",
    "dm_control",
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that results depend on."""
    installed = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def commit() -> str | None:
    """Return the commit of the source tree this package runs from, None when it is installed.

    It ends in -dirty if tracked files have changed. The variable HADAMARD_COMMIT names the commit
    of a source tree that was copied without its history.
    """
    if named := os.environ.get("HADAMARD_COMMIT"):
        return named
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    try:
        described = subprocess.run(
            [
                "git",
                "-C",
                str(source),
                "describe",
                "--always",
                "--abbrev=40",
                "--dirty",
                "--exclude=*",
            ],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None
