"""Streams: files with one JSON object in each line. Needs only the standard library.

A writer knows how much of its file it accounts for (``Extent``: rows, bytes and a checksum), which
goes into each checkpoint. So a resumed run notices rows that were lost or changed, and drops
exactly those that were written after its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hadamard.core import files
from hadamard.core.files import RunError
from hadamard.core.typed import WrongType, checked

STREAMS = ("episodes", "train", "eval", "health", "kde", "timing")
"""Their names in a run's folder."""

_FIRST_READ = 8_192
"""Bytes read at first for the last rows; more only where too few rows are in them."""
LONGEST_LINE = 64 * 2**20
"""Bytes that one row has at most."""
_BLOCK = 2**20


class Extent(NamedTuple):
    """How much of a stream there is, from its first byte."""

    rows: int
    bytes: int
    sha256: str


NOTHING = Extent(0, 0, hashlib.sha256().hexdigest())
"""The extent of a stream that holds no rows."""


def extent(value: Any, place: str) -> Extent:
    """Return an extent as JSON holds it."""
    rows, size, sha256 = checked(value, tuple[int, int, str], place)
    if rows < 0 or size < 0:
        raise WrongType(f"{place} must hold counts, got {value!r}")
    return Extent(rows, size, sha256)


class Stream:
    """A stream open for writing at its end."""

    def __init__(self, path: Path) -> None:
        self._rows = self._bytes = 0
        self._sha256 = hashlib.sha256()
        if os.path.lexists(path):
            _own_file(path)
            with files.open_file(path) as file:
                while block := file.read(_BLOCK):
                    self._count(block)
        self._file = files.open_file(path, "ab")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row, with null for numbers that are not finite; ``flush`` writes it."""
        self.write_lines([json.dumps(_finite(row))])

    def write_lines(self, lines: Sequence[str]) -> None:
        """Append rows that are JSON already."""
        data = ("\n".join(lines) + "\n").encode()
        self._file.write(data)
        self._count(data)

    def _count(self, data: bytes) -> None:
        self._rows += data.count(b"\n")
        self._bytes += len(data)
        self._sha256.update(data)

    def flush(self, *, to_disk: bool = False) -> None:
        """Write all rows; with ``to_disk``, wait until they are on the disk."""
        self._file.flush()
        if to_disk:
            os.fsync(self._file.fileno())

    @property
    def extent(self) -> Extent:
        """What has been written, from the first row."""
        return Extent(self._rows, self._bytes, self._sha256.hexdigest())

    def close(self) -> None:
        """Write all rows and close the file."""
        self._file.close()


def measured(path: Path, size: int | None = None) -> Extent:
    """Return the extent of a file's first bytes, or of the whole file."""
    rows, left, digest = 0, size, hashlib.sha256()
    with files.open_file(path) as file:
        total = 0
        while block := file.read(_BLOCK if left is None else min(_BLOCK, left)):
            rows += block.count(b"\n")
            total += len(block)
            digest.update(block)
            left = left if left is None else left - len(block)
    return Extent(rows, total, digest.hexdigest())


def problem(path: Path, expected: Extent) -> str | None:
    """Say what a stream lacks of the extent it once had; None if all of it is there."""
    if not os.path.lexists(path):
        return f"{path.name} is missing, with {_rows(expected.rows)}" if expected.rows else None
    there = measured(path, expected.bytes)
    if there == expected:
        return None
    if there.bytes < expected.bytes:
        return f"{path.name} holds {there.rows:,} of {_rows(expected.rows)}"
    return f"{path.name} was changed within its first {_rows(expected.rows)}"


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def cut(path: Path, size: int) -> None:
    """Drop everything after so many bytes."""
    if not os.path.lexists(path):
        return
    _own_file(path)
    with files.open_file(path, "r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def keep(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the rows that are not wanted, and lines that cannot be read."""
    if not os.path.lexists(path):
        return
    with files.open_file(path) as file:
        kept = [line for _, line, row in _parsed(file) if row is not None and wanted(row)]
    files.write_atomically(path, b"".join(line.rstrip(b"\n") + b"\n" for line in kept))


def keep_until(path: Path, step: int) -> None:
    """Drop the rows after a step, rows without one, and lines that cannot be read."""
    keep(path, lambda row: isinstance(row.get("step"), int) and row["step"] <= step)


def _finite(value: Any) -> Any:
    """Replace floats that are not finite, which JSON cannot hold, by None."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _own_file(path: Path) -> None:
    """Replace a hard-linked file by a copy, so that only ours changes."""
    with files.open_file(path) as file:
        if os.fstat(file.fileno()).st_nlink == 1:
            return
        data = file.read()
    files.write_atomically(path, data)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read a stream, without a last line that a crash left incomplete; no file has no rows."""
    if not os.path.lexists(path):
        return
    with files.open_file(path) as file:
        for number, line, row in _parsed(file):
            if row is not None:
                yield row
            elif line.endswith(b"\n"):
                raise RunError(f"line {number} of {path} is damaged: it is no JSON object")


def _parsed(file: BinaryIO) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
    """Yield each line's number, its bytes and its row, None if it cannot be read."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        yield number, line, parsed_row(line)


def parsed_row(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if there is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def last_rows(path: Path, count: int = 1) -> list[dict[str, Any]]:
    """Return the last rows of a stream, oldest first; damaged and unfinished lines are left out.

    Args:
        path: A file with one JSON object in each line. If there is none, there are no rows.
        count: How many rows at most.
    """
    read = _FIRST_READ
    try:
        with files.open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                start = max(size - read, 0)
                file.seek(start)
                lines = file.read(min(size - start, LONGEST_LINE)).split(b"\n")
                # The first line may be cut, and what follows the last newline is being written.
                newest = _newest(lines[1 if start else 0 : -1], count)
                if len(newest) == count or not start or read > LONGEST_LINE:
                    return newest
                read *= 8
    except (OSError, RunError):
        return []


def _newest(lines: list[bytes], count: int) -> list[dict[str, Any]]:
    newest: list[dict[str, Any]] = []
    for line in reversed(lines):
        if (row := parsed_row(line)) is not None:
            newest.append(row)
        if len(newest) == count:
            break
    return newest[::-1]
