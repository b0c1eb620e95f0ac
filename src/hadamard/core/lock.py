"""The lock of a run's folder: one process at a time trains in it. Needs only the standard library.

The lock is the operating system's on the file ``lock``, so it ends with the process that holds it,
however that ends. The file holds the process's number, for messages.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl

    SUPPORTED = True
except ImportError:  # Windows
    SUPPORTED = False

from hadamard.core import files
from hadamard.core.files import RunError

_PID_DIGITS = 10
"""Digits of a process's number at most."""


class InUse(RunError):
    """Another process is training in the folder."""


class Unsupported(RunError):
    """Runs cannot be trained on this operating system."""


def require_supported() -> None:
    """Refuse to train where folders cannot be locked."""
    if not SUPPORTED:
        raise Unsupported(
            "training needs Linux or macOS, whose file locks keep two processes out of one run "
            "folder; on Windows use WSL. The layer, the diagnosis and reports need no lock"
        )


def hold(folder: Path) -> BinaryIO:
    """Lock a folder for this process until the returned file is closed."""
    require_supported()
    path = folder / "lock"
    file = files.open_file(path, "a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        number = file.read(100).decode(errors="replace").strip() or "unknown"
        file.close()
        raise InUse(
            f"{folder} is in use by process {number}: wait for it, stop it, or choose "
            "another --run-dir"
        ) from None
    if os.fstat(file.fileno()).st_nlink != 1:
        file.close()
        raise RunError(f"{path} has another name elsewhere (a hard link): remove {path}")
    file.truncate(0)
    file.write(str(os.getpid()).encode())
    file.flush()
    return file


def holder(folder: Path) -> int | None:
    """Return the process that trains in a run folder, None if there is none.

    It is 0 while a process has locked the folder and not yet written its number.
    """
    if not SUPPORTED:
        return None
    try:
        file = files.open_file(folder / "lock")
    except (OSError, RunError):
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            digits = file.read(_PID_DIGITS).strip()
            return int(digits) if digits.isdigit() else 0
    return None
