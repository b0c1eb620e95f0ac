"""Where pages are written; a path that cannot be used is refused before any work."""

from __future__ import annotations

import os
from pathlib import Path

from hadamard.core.files import RunError, is_file, read_json, require_folder, write_atomically

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
"""Formats of figures."""


class OutputError(ValueError):
    """Nothing is written at this path; the message says why and what to name instead."""


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a path where no page (.html) or, under any other name, no folder can be made."""
    check_page(path) if Path(path).suffix == ".html" else check_folder(path)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which no folder of pages can be written."""
    folder = _checked_place(path)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file: name a page (.html) or a folder")
    _check_writable(folder)


def check_page(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which no page can be written."""
    page = _checked_place(path)
    if page.is_dir():
        raise OutputError(f"{page} is a folder: name a page in it, such as {page / 'report.html'}")
    if page.exists() and not is_file(page):
        raise OutputError(f"{page} is not a regular file: name a page (.html)")
    _check_writable(page.parent)


def check_figure(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which no figure can be written; its suffix is its format."""
    figure = _checked_place(path)
    if figure.suffix not in FIGURE_SUFFIXES:
        raise OutputError(
            f"{str(figure)!r} has no known format: name one of {', '.join(FIGURE_SUFFIXES)}"
        )
    if figure.exists() and not is_file(figure):
        raise OutputError(f"{figure} is not a regular file: name a file for the figure")
    if not figure.absolute().parent.is_dir():
        raise OutputError(f"{figure.parent} is no folder: make it, or name another place")
    _check_writable(figure.parent)


def make_output_folder(path: str | os.PathLike[str]) -> Path:
    """Make the folder of some pages, unless it exists, and return it."""
    check_folder(path)
    folder = Path(path)
    _make_folders(folder)
    return folder


def write_page_file(path: str | os.PathLike[str], html: str) -> None:
    """Write a page, and the folder it is in unless it exists."""
    check_page(path)
    page = Path(path)
    _make_folders(page.parent)
    try:
        # What no file can hold, such as half of a surrogate pair, is written as Python writes it.
        write_atomically(page, html.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise OutputError(f"{page} cannot be written: {error.strerror}") from error


def _make_folders(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_folder(folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from error


def _checked_place(path: str | os.PathLike[str]) -> Path:
    place = Path(path)
    if "\0" in str(place):
        raise OutputError(f"{str(place)!r} is no path: name a page (.html) or a folder")
    if place == Path():
        raise OutputError(
            f"{os.fspath(path)!r} is the current folder: name a folder of its own, such as report"
        )
    absolute = Path(os.path.abspath(place))
    if absolute == Path(absolute.anchor):
        raise OutputError(
            f"{place} is the root of all folders: name a folder of its own, such as report"
        )
    if place.is_symlink():
        raise OutputError(f"{place} is a link: name its target, {os.path.realpath(place)}")
    for folder in (absolute, *absolute.parents):
        if _is_run(folder):
            raise OutputError(
                f"{place} is inside the run {folder}, where only training writes: name a path "
                "outside of it"
            )
    return place


def _is_run(folder: Path) -> bool:
    if not is_file(folder / "config.json"):
        return False
    try:
        return {"algorithm", "spec"} <= set(read_json(folder / "config.json"))
    except (RunError, OSError):
        return is_file(folder / "episodes.jsonl")


def _check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, or that cannot be made."""
    try:
        existing = next(
            parent for parent in (folder, *folder.absolute().parents) if _exists(parent)
        )
    except OSError as error:  # a name that is too long, or a folder that must not be read
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from error
    if not existing.is_dir():
        raise OutputError(f"{folder} cannot be made: {existing} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(
            f"{folder} cannot be written: you may not write in {existing}; name another folder"
        )


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
