"""The last rows of a run's streams, without reading the rest. Needs only the standard library."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_FIRST_READ = 8_192
"""Bytes read at first; more only where too few rows are found in them."""


def last_rows(path: Path, count: int = 1) -> list[dict[str, Any]]:
    """Return the last rows of a stream, oldest first; damaged and unfinished lines are left out.

    Args:
        path: A file with one JSON object in each line. If there is none, there are no rows.
        count: How many rows at most.
    """
    read = _FIRST_READ
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                start = max(size - read, 0)
                file.seek(start)
                lines = file.read(size - start).split(b"\n")
                # The first line may be cut, and what follows the last newline is being written.
                rows = _parsed(lines[1 if start else 0 : -1], count)
                if len(rows) == count or not start:
                    return rows
                read *= 8
    except OSError:
        return []


def _parsed(lines: list[bytes], count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
        if len(rows) == count:
            break
    return rows[::-1]
