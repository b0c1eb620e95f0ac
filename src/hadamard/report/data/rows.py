"""The rows of a run's streams as columns of numbers, read fast and in spite of damage.

A report reads millions of rows and of each only two numbers. Rows that are all written alike, as
those of training are, differ only in the characters that numbers are made of. That is checked for
the whole file at once, and then the file without its names is one table of numbers. Whatever does
not pass is read line by line, and what cannot be read is left out and told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_OF_NUMBERS = b"0123456789.+-eE"
_ONLY_NUMBERS = bytes(byte if byte in _OF_NUMBERS else 32 for byte in range(256))
_TOLD = 3
_CHUNK = 1 << 16


class Columns(NamedTuple):
    """Some fields of a stream, (rows) each, and what was wrong with it."""

    values: dict[str, FloatArray]
    """NaN where a row has null."""
    troubles: list[str]


class Rows(NamedTuple):
    """The rows of a stream that can be read, and what was wrong with the others."""

    rows: list[dict[str, Any]]
    troubles: list[str]


def columns(path: Path, names: Sequence[str]) -> Columns:
    """Read fields of all rows of a stream; rows that lack one of them are left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    data = data[: data.rfind(b"\n") + 1]  # without a last line that is being written, or torn
    if not data:
        return Columns({name: np.empty(0) for name in names}, [])
    table = _uniform(data, names)
    if table is not None:
        return Columns(table, [])
    rows, troubles = _parsed(path, data.split(b"\n")[:-1])
    kept = {name: np.empty(0) for name in names}
    sound = [row for row in rows if all(_is_number(row.get(name, "")) for name in names)]
    for name in names:
        if any(name not in row for row in rows):
            troubles.append(f"a row of {path} lacks {name!r}")
        # numpy turns None, the null of a value that is not finite, into NaN.
        kept[name] = np.array([row[name] for row in sound], dtype=np.float64)
    if len(sound) < len(rows) and not any("lacks" in trouble for trouble in troubles):
        troubles.append(f"{_counted(len(rows) - len(sound))} of {path} has something else than "
                        f"numbers as {' and '.join(names)}")  # fmt: skip
    return Columns(kept, troubles)


def rows(path: Path) -> Rows:
    """Read all rows of a stream that can be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Rows([], [])
    return _parsed(path, data[: data.rfind(b"\n") + 1].split(b"\n")[:-1])


def last_row(path: Path) -> dict[str, Any]:
    """Return the last row of a stream that can be read, reading from its end; {} if none can."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return {}
    want = _CHUNK
    while True:
        with open(path, "rb") as file:
            file.seek(max(0, size - want))
            data = file.read(min(want, size))
        lines = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
        for line in reversed(lines if want >= size else lines[1:]):
            row = _row(line)
            if row is not None:
                return row
        if want >= size:
            return {}
        want *= 8


def first_row(path: Path, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first row of a stream that is accepted, reading no further; {} if none is."""
    try:
        with open(path, "rb") as file:
            for line in file:
                row = _row(line)
                if row is not None and accept(row):
                    return row
    except FileNotFoundError:
        pass
    return {}


def _uniform(data: bytes, names: Sequence[str]) -> dict[str, FloatArray] | None:
    """Return columns of rows that are written alike and have numbers only; None if they do not."""
    first = data[: data.index(b"\n") + 1]
    row = _row(first)
    if row is None or not all(map(_is_number, row.values())) or None in row.values():
        return None
    count = data.count(b"\n")
    if data.translate(None, _OF_NUMBERS) != first.translate(None, _OF_NUMBERS) * count:
        return None
    words = data.translate(_ONLY_NUMBERS).split()  # the numbers, and what is left of the names
    width = len(first.translate(_ONLY_NUMBERS).split())
    if len(words) != width * count:
        return None
    found = {}
    for name in names:
        at = first.find(f'"{name}": '.encode())
        if at < 0:
            return None
        place = len(first[: at + len(name) + 4].translate(_ONLY_NUMBERS).split())
        try:
            found[name] = np.array(list(map(float, words[place::width])))
        except ValueError:
            return None
    return found


def _parsed(path: Path, lines: Sequence[bytes]) -> Rows:
    found, damaged = [], []
    for number, line in enumerate(lines, start=1):
        row = _row(line)
        if row is None:
            damaged.append(number)
        else:
            found.append(row)
    if not damaged:
        return Rows(found, [])
    which = ", ".join(map(str, damaged[:_TOLD])) + (", ..." if len(damaged) > _TOLD else "")
    lines_word = "line" if len(damaged) == 1 else "lines"
    verb = "is" if len(damaged) == 1 else "are"
    return Rows(found, [f"{lines_word} {which} of {path} {verb} damaged"])


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or row.get("step") is None or not _is_number(row["step"]):
        return None  # every row has its step
    return row


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _counted(amount: int) -> str:
    return "one row" if amount == 1 else f"{amount:,} rows"
