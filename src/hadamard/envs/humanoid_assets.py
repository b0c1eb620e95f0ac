"""The model files of HumanoidBench: where they are, whether they are whole, how they get here.

They belong to the public package (MIT licence) and are not part of this one. ``hadamard assets
humanoidbench`` brings them into the user's cache; ``HADAMARD_HUMANOIDBENCH_ASSETS`` names a folder
to use instead. ``humanoid_assets.txt`` lists each file's SHA-256, size and path.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import NamedTuple

COMMIT = "791405f5eacf879adbc99105adb3fee73f5a49fc"
SOURCE = f"https://raw.githubusercontent.com/carlosferrazza/humanoid-bench/{COMMIT}/humanoid_bench/assets"
VARIABLE = "HADAMARD_HUMANOIDBENCH_ASSETS"
COMMAND = "hadamard assets humanoidbench"
LICENCE = "LICENSE"

PAUSES: tuple[float, ...] = (1.0, 3.0, 9.0)
"""Seconds before each further attempt to fetch a file."""
_TIMEOUT = 30.0


class AssetsError(OSError):
    """A model file is missing or damaged, or cannot be fetched; the message says what to do."""


class Asset(NamedTuple):
    """A file as it has to be."""

    sha256: str
    size: int
    path: str


Report = Callable[[int, int], None]
"""Told how many bytes are here, and how many there are."""


@functools.cache
def listed() -> tuple[Asset, ...]:
    """Return the files."""
    text = resources.files("hadamard.envs").joinpath("humanoid_assets.txt").read_text("utf-8")
    rows = (line.split(maxsplit=2) for line in text.splitlines())
    return tuple(Asset(sha256, int(size), path) for sha256, size, path in rows)


def folder() -> Path:
    """Return where the files are looked for."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "hadamard", "humanoidbench", COMMIT)


def locate() -> Path:
    """Return the folder of the files, after a look at their presence and sizes."""
    place = folder()
    for asset in listed():
        if asset.path == LICENCE:
            continue
        trouble = _trouble(place, asset, thorough=False)
        if trouble and os.environ.get(VARIABLE):
            raise AssetsError(
                f"{trouble}. {VARIABLE} must name a folder like humanoid_bench/assets of the "
                f"public package; without it, `{COMMAND}` fetches the files"
            )
        if trouble:
            raise AssetsError(f"{trouble}. Fetch the model files with: {COMMAND}")
    return place


def check() -> list[str]:
    """Return what is wrong with the files, their contents included; nothing if all is well."""
    place = folder()
    return [trouble for asset in listed() if (trouble := _trouble(place, asset, thorough=True))]


def _trouble(place: Path, asset: Asset, *, thorough: bool) -> str | None:
    path = place / asset.path
    try:
        size = path.stat().st_size
    except OSError:
        return f"{path} is missing"
    if size != asset.size:
        return f"{path} is damaged: it has {size:,} bytes instead of {asset.size:,}"
    if thorough:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != asset.sha256:
                return f"{path} is damaged: its SHA-256 is wrong"
    return None


def download(source: str = "", report: Report | None = None) -> Path:
    """Fetch every file that is not here whole; return the folder.

    What was fetched before an interruption stays: call it again to go on.

    Args:
        source: An address or a folder laid out like ``humanoid_bench/assets`` of the public
            package; that package's repository when empty.
        report: Told of the progress.
    """
    base = _address(source or SOURCE)
    place = folder()
    total, here = sum(asset.size for asset in listed()), 0
    for asset in listed():
        if _trouble(place, asset, thorough=True):
            # The public repository keeps its licence at the top.
            top = base.removesuffix("/humanoid_bench/assets")
            where = top if asset.path == LICENCE else base
            _fetch(f"{where}/{asset.path}", asset, place / asset.path)
        here += asset.size
        if report is not None:
            report(here, total)
    return place


def _address(source: str) -> str:
    """Return the address of a folder; an address stays as it is."""
    if source.startswith(("http://", "https://", "file://")):
        return source.rstrip("/")
    if not Path(source).is_dir():
        raise AssetsError(f"{source} is no folder and no http://, https:// or file:// address")
    return Path(source).resolve().as_uri()


def _fetch(address: str, asset: Asset, target: Path) -> None:
    """Bring one file here, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(_read(address, asset))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _read(address: str, asset: Asset) -> bytes:
    """Return a file's verified contents; try again where that may help."""
    for pause in (*PAUSES, None):
        try:
            # The files are small enough to be verified before a byte is written.
            with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
                data: bytes = answer.read(asset.size + 1)
            if hashlib.sha256(data).hexdigest() == asset.sha256:
                return data
            trouble, passing = "came damaged: its SHA-256 is wrong", True
        except urllib.error.HTTPError as error:
            error.close()
            trouble, passing = f"cannot be read: {error}", error.code >= 500 or error.code == 429
        except (OSError, http.client.HTTPException) as error:
            trouble, passing = f"cannot be read: {error}", True
        if pause is None or not passing or address.startswith("file:"):
            break
        time.sleep(pause)
    raise AssetsError(
        f"{address} {trouble}. What is here already stays: go on with `{COMMAND}`, from another "
        "address or a folder with --source"
    )
