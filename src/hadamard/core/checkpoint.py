"""Checkpoints: tensors in safetensors, everything else in JSON; never pickle.

A checkpoint is a folder ``checkpoints/step-000000123456``. It is written under a temporary name,
synced to the disk and renamed, so it exists whole or not at all. A manifest holds the checksum of
each file. The newest two are kept; if the newest is damaged, the other one is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.core import renamed
from hadamard.core.run import sync_folder
from hadamard.core.types import State

KEPT = 2
_TENSOR, _ARRAY, _ITEMS, _TUPLE = "__tensor__", "__array__", "__items__", "__tuple__"


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged or belongs to another run."""


def save(folder: Path, step: int, parts: Mapping[str, Any]) -> Path:
    """Save all parts at a step and drop checkpoints beyond the newest two.

    A part with ``save_increment`` (a replay) writes only what is new, to a folder that all
    checkpoints share. All other parts are saved by their ``state_dict``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".part-*"):
        shutil.rmtree(leftover)
    state = {
        name: part.save_increment(folder / name)
        if hasattr(part, "save_increment")
        else part.state_dict()
        for name, part in parts.items()
    }
    tensors: dict[str, Tensor] = {}
    plain = {"step": step, "parts": _encode(state, "", tensors)}
    temporary = folder / f".part-{os.getpid()}"
    temporary.mkdir()
    digests = {"tensors.safetensors": write_tensors(temporary / "tensors.safetensors", tensors)}
    digests["state.json"] = _write_json(temporary / "state.json", plain)
    _write_json(temporary / "manifest.json", digests)
    sync_folder(temporary)
    final = folder / f"step-{step:012d}"
    if final.exists():
        shutil.rmtree(final)
    os.replace(temporary, final)
    sync_folder(folder)
    # Checkpoints of later steps are damaged ones, from which the run fell back.
    kept = [path for path in _newest_first(folder) if path.name <= final.name][:KEPT]
    for other in set(_newest_first(folder)) - set(kept):
        shutil.rmtree(other)
    for name, part in parts.items():
        if hasattr(part, "prune"):
            try:
                saved = [_saved_part(kept, name) for kept in _newest_first(folder)]
            except (OSError, ValueError, KeyError):
                continue  # keep all files: a damaged checkpoint does not say what it needs
            part.prune(folder / name, saved)
    return final


def load(folder: Path, parts: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Restore all parts from the newest whole checkpoint.

    Returns its step, and a message for each damaged checkpoint that was skipped.
    """
    damaged: list[str] = []
    for path in _newest_first(folder):
        try:
            step, state = read(path)
            if set(state) != set(parts):
                raise CheckpointError(
                    f"{path} holds {', '.join(sorted(state))}; this run has "
                    f"{', '.join(sorted(parts))}"
                )
            for name, part in parts.items():
                if hasattr(part, "load_increment"):
                    part.load_increment(folder / name, state[name])
                else:
                    part.load_state_dict(state[name])
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        return step, damaged
    reason = "; ".join(damaged) or f"there is no checkpoint in {folder}"
    raise CheckpointError(f"nothing to resume from: {reason}")


def read(path: Path) -> tuple[int, State]:
    """Return the step and the state of one checkpoint, after checking its files."""
    try:
        digests = json.loads((path / "manifest.json").read_text())
        for name, digest in digests.items():
            if checksum(path / name) != digest:
                raise CheckpointError(f"{path / name} is damaged (its checksum is wrong)")
        plain = json.loads((path / "state.json").read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    tensors = read_tensors(path / "tensors.safetensors")
    return plain["step"], renamed.checkpoint(_decode(plain["parts"], tensors))


def newest(folder: Path) -> Path:
    """Return the newest whole checkpoint, with a warning if a newer one is damaged."""
    damaged: list[str] = []
    for path in _newest_first(folder):
        try:
            read(path)
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        for message in damaged:
            warnings.warn(f"an older checkpoint is used: {message}", stacklevel=2)
        return path
    raise CheckpointError(f"there is no whole checkpoint in {folder}")


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors to a new file on the disk and return its checksum."""
    from safetensors.torch import save as serialize

    return _write_bytes(path, serialize({name: _without_sharing(t) for name, t in tensors.items()}))


def _without_sharing(tensor: Tensor) -> Tensor:
    """Copy a view: the branches of a Hadamard layer share one tensor, safetensors refuses that."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what ``write_tensors`` wrote."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _write_json(path: Path, value: Any) -> str:
    return _write_bytes(path, json.dumps(value).encode())


def _write_bytes(path: Path, data: bytes) -> str:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True) if folder.is_dir() else []


def _saved_part(path: Path, name: str) -> State:
    parts = renamed.checkpoint(json.loads((path / "state.json").read_text())["parts"])
    part: State = parts[name]
    return part


def _encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move tensors to ``tensors`` and leave their names; refuse what JSON cannot hold."""
    while path in tensors:  # the keys 0 and "0" give the same path
        path += "'"
    if isinstance(value, Tensor):
        tensors[path] = value
        return {_TENSOR: path}
    if isinstance(value, np.ndarray):
        tensors[path] = torch.from_numpy(np.asarray(value, order="C"))
        return {_ARRAY: path}
    if isinstance(value, Mapping):
        encoded = {key: _encode(item, f"{path}/{key}", tensors) for key, item in value.items()}
        if all(isinstance(key, str) for key in value):
            return encoded
        return {_ITEMS: [[key, item] for key, item in encoded.items()]}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint cannot hold {path}, a {type(value).__name__}")


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _ARRAY in value:
        return tensors[value[_ARRAY]].numpy()
    if _ITEMS in value:
        return {key: _decode(item, tensors) for key, item in value[_ITEMS]}
    if _TUPLE in value:
        return tuple(_decode(item, tensors) for item in value[_TUPLE])
    return {key: _decode(item, tensors) for key, item in value.items()}
