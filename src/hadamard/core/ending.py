"""The file DONE: a finished run's summary, and how much of each stream there was at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hadamard.core import files, streams
from hadamard.core.files import RunError
from hadamard.core.streams import Extent
from hadamard.core.typed import WrongType, checked

_SUMMARY = {
    "steps": int,
    "score": float | None,
    "greedy_score": float | None,
    "episodes": int | None,
    "seconds": float | None,
}
"""The fields of the summary."""


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Extent]]:
    """Return the summary, and how much of each stream there was.

    Raises:
        FileNotFoundError: The run is not finished.
        RunError: The file is damaged.
    """
    path = folder / "DONE"
    try:
        values: dict[str, Any] = files.read_json(path)
        checksum = values.pop("checksum", None)  # absent in runs of earlier versions
        if checksum is not None and files.checksum_of(values) != checksum:
            raise RunError(f"{path} is damaged: its checksum is wrong")
        extents = checked(values.pop("streams", {}), dict[str, Any], "streams")
        for name, kind in _SUMMARY.items():
            checked(values.get(name), kind, name)
        return values, {name: streams.extent(extents[name], f"streams.{name}") for name in extents}
    except WrongType as error:
        raise RunError(f"{path} is damaged: {error}") from None


def write(folder: Path, summary: Mapping[str, Any], extents: Mapping[str, Extent]) -> None:
    """Mark a run as finished."""
    values = {**summary, "streams": extents}
    ending = {**values, "checksum": files.checksum_of(values)}
    files.write_atomically(folder / "DONE", json.dumps(ending, indent=2) + "\n")
