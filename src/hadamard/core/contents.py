"""What a run's folder may hold: the files that training writes, and what a crash leaves."""

from __future__ import annotations

from pathlib import Path

from hadamard.core import files, record
from hadamard.core.streams import STREAMS

_WHOLE_FILES = ("config.json", "DONE", "relearning.json", *(f"{name}.jsonl" for name in STREAMS))
_FOLDERS = ("checkpoints", "films", "tensorboard")
_OWN = (*_WHOLE_FILES, "lock", "wandb-id", "play.mp4", "play.gif")


def is_own(entry: Path) -> bool:
    """Tell whether something in a run's folder was written there by training, or a film of it."""
    if entry.name in _FOLDERS:
        return files.is_folder(entry)
    return files.is_file(entry) and (files.finished_name(entry.name) or entry.name) in _OWN


def is_unfinished(entry: Path) -> bool:
    """Tell whether it is a file that a crash left half written."""
    return files.finished_name(entry.name) in _WHOLE_FILES and files.is_file(entry)


def only_leftovers(path: Path) -> bool:
    """Tell whether a folder holds no more than a crash leaves before config.json is there."""
    return all(
        entry.name == "lock"
        or (entry.name == "checkpoints" and record.is_untouched(entry))
        or files.finished_name(entry.name) == "config.json"
        for entry in path.iterdir()
    )
