"""Read and write files that a stranger may have prepared. Needs only the standard library.

Run folders are shared. So inside one, only regular files and real folders are used, no link is
followed, sizes are bounded, and a file is replaced as a whole by way of a new file whose name
nobody can guess.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any, BinaryIO, Literal

from hadamard.core.typed import checked

SMALL = 4 * 2**20
"""Bytes that a file of settings or of a summary has at most."""


def flags(*names: str) -> int:
    """Return the flags of ``os.open`` by their names; Windows lacks some of them."""
    return sum(getattr(os, name, 0) for name in names)


_FLAGS = {
    "rb": os.O_RDONLY,
    "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "r+b": os.O_RDWR,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a+b": os.O_RDWR | os.O_APPEND | os.O_CREAT,
}
Mode = Literal["rb", "ab", "r+b", "xb", "a+b"]

_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.part")


class RunError(RuntimeError):
    """A run folder cannot be used as requested; the message says why and what to do."""


def open_file(path: str | os.PathLike[str], mode: Mode = "rb") -> BinaryIO:
    """Open a regular file without following a link at its name, and without waiting for it.

    Raises:
        FileNotFoundError: There is none.
        RunError: It is a link, a folder, a pipe or a device.
    """
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):  # Windows
        raise RunError(_not_regular(path))
    safely = flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
    try:
        descriptor = os.open(path, _FLAGS[mode] | safely, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise RunError(_not_regular(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunError(_not_regular(path))
    return os.fdopen(descriptor, mode)


def _not_regular(path: str | os.PathLike[str]) -> str:
    what = "a link" if os.path.islink(path) else "not a regular file"
    return f"{os.fspath(path)} is {what}: only regular files are used in a run folder; replace it"


def is_file(path: Path) -> bool:
    """Tell whether a path is a regular file; a link is not."""
    return _kind(path) == stat.S_IFREG


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; a link to one is not."""
    return _kind(path) == stat.S_IFDIR


def _kind(path: Path) -> int | None:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return None


def require_folder(path: Path) -> None:
    """Refuse a path that exists and is not a real folder."""
    if os.path.lexists(path) and not is_folder(path):
        what = "a link" if path.is_symlink() else "not a folder"
        raise RunError(f"{path} is {what}: a run folder must hold a real folder there; replace it")


def make_folder(path: Path) -> None:
    """Make a folder inside of a run folder, unless it is there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    require_folder(path)


def read_bytes(path: Path, limit: int = SMALL) -> bytes:
    """Read a regular file of at most so many bytes."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RunError(f"{path} is larger than the {limit:,} bytes such a file can have")
    return data


def read_json(path: Path, kind: Any = dict[str, Any], limit: int = SMALL) -> Any:
    """Read a JSON file whose value has the type ``kind``, see `core.typed.checked`.

    Raises:
        FileNotFoundError: There is none.
        RunError: It is damaged, of another type, too large or no regular file.
    """
    try:
        value = json.loads(read_bytes(path, limit))
        require_shallow(value)
        return checked(value, kind, "its value")
    except RecursionError:
        raise RunError(f"{path} is damaged: {_TOO_DEEP}") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None


_DEEPEST = 100
_TOO_DEEP = "its values are nested too deeply"


def require_shallow(value: Any) -> None:
    """Refuse values nested so deeply that recursive functions would fail."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def checksum_of(value: Any) -> str:
    """Return the SHA-256 of a value of JSON, however it is written."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file so that readers see the old or the new content, never a part of it.

    The content is on the disk when this returns. A link at that name is replaced, not followed.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(unfinished_name(path.name))
    try:
        with open_file(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except Exception:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    sync_folder(path.parent)


def unfinished_name(name: str) -> str:
    """Return a new, unguessable name under which something is written before it has its name."""
    return f".{name}.{secrets.token_hex(8)}.part"


def finished_name(unfinished: str) -> str | None:
    """Return the name that a file or folder was to get, None if it is not an unfinished one.

    Examples:
        >>> finished_name(".DONE.0123456789abcdef.part"), finished_name("DONE.part")
        ('DONE', None)
    """
    match = _UNFINISHED.fullmatch(unfinished)
    return match["name"] if match else None


def sync_folder(path: Path) -> None:
    """Write a folder's entries to the disk, after a rename in it."""
    if os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
