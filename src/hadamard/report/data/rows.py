"""The rows of a run's streams as columns of numbers, read fast and in spite of damage.

A report reads millions of rows, and only two numbers of each. Rows that are all written alike, as
those of training are, differ only in the characters that numbers consist of. That is checked for
a file at once; the file without its names is then one table of numbers. Any other file is read
line by line; what cannot be read is left out, and reported.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hadamard.core.run import Run
from hadamard.core.streams import parsed_row
from hadamard.report.data.numbers import LARGEST, is_number
from hadamard.report.data.series import FloatArray
from hadamard.text import counted

_NUMBER_BYTES = b"0123456789.+-eE"
_BLANK_OTHERS = bytes(byte if byte in _NUMBER_BYTES else 32 for byte in range(256))
_MOST_NAMED_LINES = 3
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


def stream_path(run: Run, name: str, troubles: list[str]) -> Path | None:
    """Return a stream's path; None if there is none, or something else in its place."""
    path = run.path / f"{name}.jsonl"
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        troubles.append(f"{path} is a link or no plain file, which is not followed")
        return None
    return path


def is_step(value: object) -> bool:
    """Tell whether a value can be the step of a row."""
    return is_number(value) and 0 <= value <= LARGEST


def columns(path: Path, names: Sequence[str]) -> Columns:
    """Read fields of all rows of a stream; rows that lack one of them are left out."""
    data = _complete_lines(path)
    if not data:
        return Columns({name: np.empty(0) for name in names}, [])
    table = _uniform_columns(data, names)
    if table is not None:
        return Columns(table, [])
    parsed, troubles = _parsed(path, data)
    usable = [row for row in parsed if all(_is_number_or_null(row.get(name, "")) for name in names)]
    lacking = [name for name in names if any(name not in row for row in parsed)]
    troubles += [f"a row of {path} lacks {name!r}" for name in lacking]
    if len(usable) < len(parsed) and not lacking:
        count = len(parsed) - len(usable)
        amount = "one row" if count == 1 else counted(count, "row")
        fields = " and ".join(names)
        troubles.append(f"{amount} of {path} has something else than numbers as {fields}")
    # numpy turns None, the null of a value that is not finite, into NaN.
    values = {name: np.array([row[name] for row in usable], dtype=np.float64) for name in names}
    return Columns(values, troubles)


def rows(path: Path) -> Rows:
    """Read all rows of a stream that can be read."""
    return _parsed(path, _complete_lines(path))


def last_row(path: Path) -> dict[str, Any]:
    """Return the last row of a stream that can be read, reading from its end; {} if none can."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return {}
    amount = _CHUNK
    while True:
        with open(path, "rb") as file:
            file.seek(max(0, size - amount))
            data = file.read(min(amount, size))
        lines = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
        for line in reversed(lines if amount >= size else lines[1:]):
            row = _step_row(line)
            if row is not None:
                return row
        if amount >= size:
            return {}
        amount *= 8


def first_row(path: Path, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first row of a stream that is accepted, reading no further; {} if none is."""
    try:
        with open(path, "rb") as file:
            for line in file:
                row = _step_row(line)
                if row is not None and accept(row):
                    return row
    except FileNotFoundError:
        pass
    return {}


def _complete_lines(path: Path) -> bytes:
    """Return a file without a last line that is torn or still being written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]


def _uniform_columns(data: bytes, names: Sequence[str]) -> dict[str, FloatArray] | None:
    """Return columns of rows that are written alike and have numbers only; None if they do not."""
    first = data[: data.index(b"\n") + 1]
    row = _step_row(first)
    if row is None or not all(map(_is_number_or_null, row.values())) or None in row.values():
        return None
    count = data.count(b"\n")
    if data.translate(None, _NUMBER_BYTES) != first.translate(None, _NUMBER_BYTES) * count:
        return None
    words = data.translate(_BLANK_OTHERS).split()  # numbers, and what is left of the names
    width = len(first.translate(_BLANK_OTHERS).split())
    if len(words) != width * count:
        return None
    table = {}
    for name in names:
        position = first.find(f'"{name}": '.encode())
        if position < 0:
            return None
        column = len(first[: position + len(name) + 4].translate(_BLANK_OTHERS).split())
        try:
            table[name] = np.array(list(map(float, words[column::width])))
        except ValueError:
            return None
    return table


def _parsed(path: Path, data: bytes) -> Rows:
    """Parse complete lines one by one."""
    parsed, damaged = [], []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        row = _step_row(line)
        if row is None:
            damaged.append(number)
        else:
            parsed.append(row)
    if not damaged:
        return Rows(parsed, [])
    numbers = ", ".join(map(str, damaged[:_MOST_NAMED_LINES]))
    numbers += ", ..." if len(damaged) > _MOST_NAMED_LINES else ""
    noun, verb = ("line", "is") if len(damaged) == 1 else ("lines", "are")
    return Rows(parsed, [f"{noun} {numbers} of {path} {verb} damaged"])


def _step_row(line: bytes) -> dict[str, Any] | None:
    """Return a line as a row, which has a step; None if it is none."""
    row = parsed_row(line)
    if row is None or row.get("step") is None:
        return None
    return row if _is_number_or_null(row["step"]) else None


def _is_number_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
