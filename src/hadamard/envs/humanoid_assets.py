"""The model files of HumanoidBench: where they are, whether they are intact, how to fetch them.

They belong to the public package (MIT license) and are not part of this one. ``hadamard assets
humanoidbench`` downloads them into the user's cache; ``HADAMARD_HUMANOIDBENCH_ASSETS`` names a
folder to use instead. ``humanoid_assets.txt`` lists each file's SHA-256, size and path.
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
LICENSE = "LICENSE"

PAUSES: tuple[float, ...] = (1.0, 3.0, 9.0)
"""Seconds before each further attempt to fetch a file."""
_TIMEOUT = 30.0


class AssetsError(OSError):
    """A model file is missing or damaged, or cannot be fetched; the message says what to do."""


class Asset(NamedTuple):
    """A model file: its checksum, size in bytes, and path below the folder."""

    sha256: str
    size: int
    path: str


OnProgress = Callable[[int, int], None]
"""Called with the number of bytes present and the number in all."""


@functools.cache
def manifest() -> tuple[Asset, ...]:
    """Return all files that the tasks need."""
    text = resources.files("hadamard.envs").joinpath("humanoid_assets.txt").read_text("utf-8")
    rows = (line.split(maxsplit=2) for line in text.splitlines())
    return tuple(Asset(sha256, int(size), path) for sha256, size, path in rows)


def folder() -> Path:
    """Return the folder where the files are expected."""
    path = os.environ.get(VARIABLE)
    if path:
        return Path(path)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "hadamard", "humanoidbench", COMMIT)


def locate() -> Path:
    """Return the folder of the files, after a check that all are there with the right size."""
    root = folder()
    for asset in manifest():
        if asset.path == LICENSE:
            continue
        problem = _problem(root, asset, check_contents=False)
        if problem and os.environ.get(VARIABLE):
            raise AssetsError(
                f"{problem}. {VARIABLE} must name a folder like humanoid_bench/assets of the "
                f"public package; unset it to fetch the files with: {COMMAND}"
            )
        if problem:
            raise AssetsError(f"{problem}. Fetch the model files with: {COMMAND}")
    return root


def check() -> list[str]:
    """Return one message for each missing or damaged file; contents are checked too."""
    root = folder()
    return [
        problem for asset in manifest() if (problem := _problem(root, asset, check_contents=True))
    ]


def _problem(root: Path, asset: Asset, *, check_contents: bool) -> str | None:
    """Say what is wrong with a file; ``check_contents`` also checks its contents."""
    path = root / asset.path
    try:
        size = path.stat().st_size
    except OSError:
        return f"{path} is missing"
    if size != asset.size:
        return f"{path} is damaged: it has {size:,} bytes instead of {asset.size:,}"
    if check_contents:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != asset.sha256:
                return f"{path} is damaged: its SHA-256 is wrong"
    return None


def download(source: str = "", on_progress: OnProgress | None = None) -> Path:
    """Fetch every file that is missing or damaged; return the folder.

    Files fetched before an interruption stay, so that a second call continues.

    Args:
        source: A URL or a folder laid out like ``humanoid_bench/assets`` of the public package; if
            empty, that package's repository.
        on_progress: Called after each file.
    """
    base = _url(source or SOURCE)
    root = folder()
    total, present = sum(asset.size for asset in manifest()), 0
    for asset in manifest():
        if _problem(root, asset, check_contents=True):
            # In the public repository the license is at the top.
            repository = base.removesuffix("/humanoid_bench/assets")
            parent = repository if asset.path == LICENSE else base
            _fetch(f"{parent}/{asset.path}", asset, root / asset.path)
        present += asset.size
        if on_progress is not None:
            on_progress(present, total)
    return root


def _url(source: str) -> str:
    """Return the URL of a folder; a URL is returned as it is."""
    if source.startswith(("http://", "https://", "file://")):
        return source.rstrip("/")
    if not Path(source).is_dir():
        raise AssetsError(
            f"--source {source} is neither a folder nor an http://, https:// or file:// URL"
        )
    return Path(source).resolve().as_uri()


def _fetch(url: str, asset: Asset, target: Path) -> None:
    """Download one file completely, or leave none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(_read(url, asset))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _read(url: str, asset: Asset) -> bytes:
    """Return a file's verified contents; retry if that may help."""
    for pause in (*PAUSES, None):
        try:
            # The files are small enough to be verified in memory, before anything is written.
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                data: bytes = response.read(asset.size + 1)
            if hashlib.sha256(data).hexdigest() == asset.sha256:
                return data
            problem, retry = "arrived damaged: its SHA-256 is wrong", True
        except urllib.error.HTTPError as error:
            error.close()
            problem, retry = f"cannot be read: {error}", error.code >= 500 or error.code == 429
        except (OSError, http.client.HTTPException) as error:
            problem, retry = f"cannot be read: {error}", True
        if pause is None or not retry or url.startswith("file:"):
            break
        time.sleep(pause)
    raise AssetsError(
        f"{url} {problem}. Files already fetched stay: continue with `{COMMAND}`, or "
        "name another URL or folder with --source"
    )
