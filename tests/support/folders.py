"""What is in a folder, to tell whether anything in it was changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def contents(folder: Path) -> dict[str, str]:
    """Return everything in a run's folder by its relative name; the lock is no part of a run."""
    entries = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            entries[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            entries[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            entries[name] = "folder" if path.is_dir() else "special"
    return {name: entry for name, entry in entries.items() if not name.endswith("lock")}
