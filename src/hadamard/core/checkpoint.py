"""Checkpoints: tensors in safetensors, everything else in JSON; never pickle.

A checkpoint is a folder ``checkpoints/step-000000123456``. It is written under a temporary name,
synced to the disk and renamed, so it exists whole or not at all. A manifest holds the checksum of
each file, the settings of the run and how long its streams were. The newest two are kept, and those
that a run asks to keep; if the newest is damaged, the one before is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from hadamard.core import files, record, renamed, streams
from hadamard.core.alike import require_alike
from hadamard.core.files import RunError
from hadamard.core.streams import Extent
from hadamard.core.typed import checked, shortened
from hadamard.core.types import State

KEPT = 2
_TENSOR, _ARRAY, _ITEMS, _TUPLE = "__tensor__", "__array__", "__items__", "__tuple__"
_LARGEST_STATE = 2**30
"""Bytes that state.json has at most."""


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged or belongs to another run."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says about itself and its run."""

    digests: Mapping[str, str]
    """The checksum of each of its files."""
    settings: Mapping[str, Any] | None = None
    """The settings of the run; None in checkpoints of earlier versions."""
    extents: Mapping[str, Extent] | None = None
    """How much of each stream there was; None in checkpoints of earlier versions."""


@dataclass(frozen=True)
class About:
    """What a checkpoint records of its run, beside the state of the parts."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    extents: Mapping[str, Extent] = field(default_factory=dict)


def save(
    folder: Path,
    step: int,
    parts: Mapping[str, Any],
    about: About | None = None,
    keep_every: int = 0,
) -> Path:
    """Save all parts at a step and drop checkpoints beyond the newest two.

    With ``keep_every`` the first one of every so many steps is kept too.

    A part with ``save_increment`` (a replay) writes only what is new, to a folder that all
    checkpoints share. All other parts are saved by their ``state_dict``.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    files.make_folder(folder)
    record.remove_unfinished(folder)
    listed = record.own(folder)
    state = {}
    for name, part in parts.items():
        if hasattr(part, "save_increment"):
            files.require_folder(folder / name)
            state[name] = part.save_increment(folder / name)
        else:
            state[name] = part.state_dict()
    tensors: dict[str, Tensor] = {}
    plain = {"step": step, "parts": _encode(state, "", tensors)}
    final = folder / record.name_of(step)
    begun = [*listed.begun, *([] if final.name in listed.saved else [final.name])]
    record.write(folder, listed._replace(begun=begun))
    temporary = folder / files.unfinished_name(final.name)
    temporary.mkdir()
    digests = {
        "tensors.safetensors": _write(temporary / "tensors.safetensors", serialized(tensors))
    }
    digests["state.json"] = _write_json(temporary / "state.json", plain)
    about = about or About()
    manifest = {"files": digests, "settings": about.settings, "streams": about.extents}
    _write_json(temporary / "manifest.json", {**manifest, "checksum": files.checksum_of(manifest)})
    files.sync_folder(temporary)
    _make_room(final, listed)
    os.replace(temporary, final)
    files.sync_folder(folder)
    _remove_others(folder, final, parts, keep_every)
    return final


def _make_room(final: Path, listed: record.Record) -> None:
    """Remove our checkpoint of the same step; rename anything else that has its name."""
    if not os.path.lexists(final):
        return
    if final.name in (*listed.saved, *listed.begun) and files.is_folder(final):
        shutil.rmtree(final)
        return
    aside = final.with_name(f"{final.name}-moved-{secrets.token_hex(4)}")
    os.rename(final, aside)
    warnings.warn(f"{final} was not made by this run: it is called {aside.name} now", stacklevel=3)


def _remove_others(
    folder: Path, final: Path, parts: Mapping[str, Any], keep_every: int = 0
) -> None:
    """Remove our checkpoints but those to keep up to ``final``, and what only they needed."""
    listed = record.own(folder)
    names = {*listed.saved, *listed.begun}
    ours = [path for path in record.checkpoints(folder) if path.name in names]
    # Checkpoints of later steps are damaged ones, from which the run fell back.
    earlier = [path for path in ours if path.name <= final.name]
    kept = [*earlier[:KEPT], *_first_of_each(keep_every, earlier[KEPT:])]
    record.remove(path for path in ours if path not in kept)
    record.write(folder, record.Record([], [path.name for path in kept]))
    for name, part in parts.items():
        if hasattr(part, "prune"):
            try:
                saved = [_saved_part(path, name) for path in record.checkpoints(folder)]
                part.prune(folder / name, saved)
            except (OSError, ValueError, KeyError, TypeError, RunError):
                continue  # keep all files: a damaged checkpoint does not say what it needs


def _first_of_each(interval: int, newest_first: list[Path]) -> list[Path]:
    """Return the first checkpoint of each interval of so many steps, but for the first interval."""
    first: dict[int, Path] = {}
    for path in newest_first if interval else ():
        first[record.step_of(path) // interval] = path  # an older one replaces a newer one
    return [path for number, path in first.items() if number]


def load(
    folder: Path,
    parts: Mapping[str, Any],
    accept: Callable[[Path, Manifest], None] | None = None,
) -> tuple[int, list[str]]:
    """Restore all parts from the newest whole checkpoint.

    ``accept`` raises a CheckpointError where a checkpoint does not fit what else the run holds.
    Returns its step, and for each newer checkpoint why it was not used.
    """
    skipped: list[str] = []
    for path in record.checkpoints(folder):
        try:
            step, state = read(path)
            if accept is not None:
                accept(path, manifest(path))
            if set(state) != set(parts):
                raise CheckpointError(
                    f"{path} holds {', '.join(sorted(state))}; this run has "
                    f"{', '.join(sorted(parts))}"
                )
            for name, part in parts.items():
                restore(path, name, part, state[name])
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        return step, skipped
    reason = "; ".join(skipped) or f"there is no checkpoint in {folder}"
    raise CheckpointError(f"nothing to resume from: {reason}")


def restore(path: Path, name: str, part: Any, state: Any) -> None:
    """Restore one part from its state in a checkpoint."""
    try:
        if hasattr(part, "load_increment"):
            files.require_folder(path.parent / name)
            part.load_increment(path.parent / name, state)
        else:
            require_alike(state, part.state_dict(), name)
            part.load_state_dict(state)
    except (CheckpointError, MemoryError, torch.cuda.OutOfMemoryError):
        raise
    # Whatever a state of another form raises: a checkpoint is not trusted.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{path} does not fit this run: {name} cannot be restored "
            f"({type(error).__name__}: {reason})"
        ) from error


def read(path: Path) -> tuple[int, State]:
    """Return the step and the state of one checkpoint, after checking its files."""
    try:
        for name, digest in manifest(path).digests.items():
            if checksum(path / name) != digest:
                raise CheckpointError(f"{path / name} is damaged (its checksum is wrong)")
        plain = files.read_json(path / "state.json", limit=_LARGEST_STATE)
        step = checked(plain.get("step"), int, "step")
        if path.name != record.name_of(step):
            raise RunError(f"its state is of step {step}")
        parts = checked(plain.get("parts"), dict[str, Any], "parts")
        tensors = read_tensors(path / "tensors.safetensors")
        state = renamed.checkpoint(_decode(parts, tensors))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, RunError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    return step, state


def manifest(path: Path) -> Manifest:
    """Return what a checkpoint says about itself."""
    values = files.read_json(path / "manifest.json")
    if "files" not in values:  # as earlier versions wrote it
        return Manifest(_digests(values))
    rest = {key: value for key, value in values.items() if key != "checksum"}
    if files.checksum_of(rest) != values.get("checksum"):
        raise RunError(f"{path / 'manifest.json'} is damaged (its checksum is wrong)")
    extents = checked(values.get("streams"), dict[str, Any], "streams")
    return Manifest(
        _digests(values["files"]),
        checked(values.get("settings"), dict[str, Any], "settings"),
        {name: streams.extent(value, f"streams.{name}") for name, value in extents.items()},
    )


def _digests(values: Any) -> dict[str, str]:
    digests: dict[str, str] = checked(values, dict[str, str], "files")
    if set(digests) != {"tensors.safetensors", "state.json"}:
        raise RunError(f"it lists the files {', '.join(sorted(digests)) or 'none'}")
    return digests


def newest(folder: Path) -> Path:
    """Return the newest whole checkpoint, with a warning if a newer one is damaged."""
    damaged: list[str] = []
    for path in record.checkpoints(folder):
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
    with files.open_file(path) as file:
        return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()


def serialized(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as a safetensors file holds them."""
    from safetensors.torch import save as serialize

    return serialize({name: _without_sharing(tensor) for name, tensor in tensors.items()})


def _without_sharing(tensor: Tensor) -> Tensor:
    """Copy a view: the branches of a Hadamard layer share one tensor, safetensors refuses that."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: {shortened(str(error), 200)}") from error


def _write_json(path: Path, value: Any) -> str:
    return _write(path, json.dumps(value).encode())


def _write(path: Path, data: bytes) -> str:
    """Write a new file to the disk and return its checksum."""
    with files.open_file(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def _saved_part(path: Path, name: str) -> State:
    parts = renamed.checkpoint(files.read_json(path / "state.json", limit=_LARGEST_STATE)["parts"])
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
