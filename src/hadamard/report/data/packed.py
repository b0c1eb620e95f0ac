"""Packed runs: a run's record in one small file of compressed JSON.

It has two lines, as `zcat` shows: a head (format, schema, checksum of the second line) and the
record, which includes the densities that figures show.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import zlib
from pathlib import Path
from typing import Any

from hadamard.core import renamed
from hadamard.core.files import flags, sync_folder
from hadamard.core.run import Run, RunError
from hadamard.core.typed import shortened
from hadamard.report.data.densities import thinned_densities
from hadamard.report.data.thin import Record, thinned

SUFFIX = ".hrun"
FORMAT = "hadamard packed run"
SCHEMA = 2
"""It rises when a reader of the old schema would misread the new one, or could not read it.

Schema 1 has settings under old names, which `core.renamed` translates, and is still read.
"""
LARGEST = 32 * 2**20
"""The most bytes of a packed run, compressed or not; most have a thousandth of it."""
_GZIP = 31  # zlib's name for a gzip container


def record_of(folder: Path) -> Record:
    """Read a run's folder as the record that is packed."""
    record = thinned(Run.open(folder))
    record["densities"] = thinned_densities(folder, record["spec"]["train.steps"])
    # The file may be moved anywhere, so it does not name the folder.
    record["troubles"] = [
        trouble.replace(str(folder), record["name"]) for trouble in record["troubles"]
    ]
    return record


def packed(record: Record) -> bytes:
    """Return a record as the bytes of a packed run; equal records give equal bytes."""
    body = _line(record)
    head = {"format": FORMAT, "schema": SCHEMA, "sha256": hashlib.sha256(body).hexdigest()}
    compressor = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    return compressor.compress(_line(head) + body) + compressor.flush()


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_packed(path: Path) -> Record:
    """Read a packed run; its fields are checked by whoever uses them."""
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer. A link named by the user is followed.
        with open(os.open(path, flags("O_RDONLY", "O_NONBLOCK", "O_BINARY")), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RunError(f"{path} is not a file: name a packed run or a run's folder")
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    return unpacked(data, path)


def unpacked(data: bytes, path: Path) -> Record:
    """Return the record in the bytes of a packed run; ``path`` is what errors name."""
    remedy = "pack the run again, or leave the file out"
    decompressor = zlib.decompressobj(_GZIP)
    try:
        text = decompressor.decompress(data, LARGEST + 1)
    except zlib.error as error:
        raise RunError(f"{path} is damaged or no packed run ({error}): {remedy}") from error
    if len(text) > LARGEST or len(data) > LARGEST:
        raise RunError(
            f"{path} holds more than {LARGEST:,} bytes, which no packed run does: {remedy}"
        )
    first, _, body = text.partition(b"\n")
    head = _object(first)
    if head is None or head.get("format") != FORMAT:
        raise RunError(f"{path} is damaged or no packed run: {remedy}")
    schema = head.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or not 1 <= schema <= SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        raise RunError(
            f"{path} is a packed run of schema {shortened(schema)}, and this version reads 1 to "
            f"{SCHEMA}: " + ("update hadamard, or leave the file out" if newer else remedy)
        )
    if not decompressor.eof:
        raise RunError(f"{path} is cut off: {remedy}")
    if hashlib.sha256(body).hexdigest() != head.get("sha256") or decompressor.unused_data:
        raise RunError(f"{path} is damaged (its checksum is another): {remedy}")
    record = _object(body)
    if record is None:
        raise RunError(f"{path} holds no record of a run: {remedy}")
    if isinstance(record.get("spec"), dict):
        record["spec"] = renamed.settings(record["spec"])
    return record


def _object(line: bytes) -> Record | None:
    """Return the JSON object in a line; None if there is none."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def write_packed(path: Path, data: bytes) -> None:
    """Write a packed run completely or not at all; a link in its place is replaced."""
    part = path.with_name(f".{path.name}.part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()  # left by a crash
    new = flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_BINARY")
    with open(os.open(part, new, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path.parent)
