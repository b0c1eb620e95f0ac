"""What the program itself made in a run's folder of checkpoints. Only standard library.

The file ``record.json`` lists the checkpoints that were begun and those that were saved. Only what
it lists is ever removed: a copy, or a folder of the user's, stays. It also tells a run that was
never saved from one whose checkpoints are lost.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hadamard.core import files
from hadamard.core.files import RunError

_FILE = "record.json"
_NAME = re.compile(r"step-(\d{12})")


class Record(NamedTuple):
    """Names of the checkpoints that the program made."""

    begun: list[str]
    """Those that may have been written."""
    saved: list[str]
    """Those that were written."""


def name_of(step: int) -> str:
    """Return the name of the checkpoint at a step."""
    return f"step-{step:012d}"


def step_of(path: Path) -> int:
    """Return the step of a checkpoint."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is not the name of a checkpoint")
    return int(match[1])


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first; other names and links are not."""
    files.require_folder(folder)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    paths = [folder / name for name in sorted(names, reverse=True) if _NAME.fullmatch(name)]
    return [path for path in paths if files.is_folder(path)]


def last_saved(folder: Path) -> str:
    """Say in a message which checkpoint is the newest."""
    saved = checkpoints(folder)
    if saved:
        return f"the last good checkpoint is {saved[0]}"
    return f"no checkpoint was written to {folder}"


def begin(folder: Path) -> None:
    """Make the folder of a new run, with a record that lists nothing."""
    files.make_folder(folder)
    write(folder, Record([], []))


def read(folder: Path) -> Record | None:
    """Return the record, None if there is none, as in the runs of earlier versions."""
    try:
        values = files.read_json(folder / _FILE, dict[str, list[str]])
    except FileNotFoundError:
        return None
    except RunError as error:
        raise RunError(
            f"{error}. If it is removed, the checkpoints that are there are used"
        ) from None
    begun, saved = (
        [n for n in values.get(key, []) if _NAME.fullmatch(n)] for key in Record._fields
    )
    return Record(begun, saved)


def write(folder: Path, record: Record) -> None:
    """Replace the record."""
    files.write_atomically(folder / _FILE, json.dumps(record._asdict()) + "\n")


def own(folder: Path) -> Record:
    """Return the record; without one, whatever has a checkpoint's name was made by the program."""
    names = [path.name for path in checkpoints(folder)]
    return read(folder) or Record([], names)


def is_untouched(folder: Path) -> bool:
    """Tell whether a folder holds nothing but a record that lists nothing."""
    if not files.is_folder(folder):
        return False
    names = {files.finished_name(name) or name for name in os.listdir(folder)}
    return names <= {_FILE} and read(folder) in (None, Record([], []))


def others(folder: Path) -> list[Path]:
    """Return what is in a folder of checkpoints that the program did not make."""
    listed = own(folder)
    ours = {_FILE, *listed.begun, *listed.saved}
    entries = sorted(folder.iterdir()) if files.is_folder(folder) else []
    return [
        entry
        for entry in entries
        if (files.finished_name(entry.name) or entry.name) not in ours
        and not (entry.name.startswith("agent.") and files.is_folder(entry))  # a replay's frames
    ]


def require_never_saved(folder: Path, *, rows: bool) -> None:
    """Refuse to start a run over whose checkpoints are lost; ``rows``: whether it wrote any."""
    record = read(folder) if files.is_folder(folder) else None
    if record is None and not rows:
        return
    if record is None or record.saved:
        lost = f"its checkpoints ({', '.join(record.saved)})" if record else f"its folder {folder}"
        raise RunError(
            f"{folder.parent} cannot be continued: {lost} cannot be found. Restore what is "
            f"missing from a copy, or remove {folder.parent} to train the run anew"
        )


def remove(paths: Iterable[Path]) -> None:
    """Remove checkpoints; links inside them are removed themselves, and not followed."""
    for path in paths:
        if files.is_folder(path):
            shutil.rmtree(path)


def remove_unfinished(folder: Path) -> None:
    """Remove what a crash left of a checkpoint that was being written."""
    for name in os.listdir(folder):
        finished = files.finished_name(name)
        path = folder / name
        if finished is not None and _NAME.fullmatch(finished) and files.is_folder(path):
            shutil.rmtree(path)
        elif finished == _FILE and files.is_file(path):
            path.unlink()
