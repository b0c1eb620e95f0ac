"""Figures written to files, in parallel on all cores."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hadamard.core.files import write_atomically
from hadamard.report.draw.plain_text import reason
from hadamard.report.draw.svg import quiet_fonts, svg_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 120
_MAX_SEQUENTIAL = 6
# Forked workers read this global: drawing functions cannot be pickled.
_pending: Sequence[Picture] = ()


class Picture(NamedTuple):
    """A figure that is not drawn yet, and its files."""

    draw: Callable[[], Figure]
    path: Path
    """The path of its files without their suffixes."""


class Failure(NamedTuple):
    """Stands for a figure that could not be drawn."""

    reason: str


def draw_all(pictures: Sequence[Picture]) -> list[str | Failure]:
    """Write every picture as SVG and PNG; return the contents of the SVG files."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores == 1 or len(pictures) <= _MAX_SEQUENTIAL or sys.platform != "linux":
        return [_draw(picture) for picture in pictures]
    import matplotlib.figure  # imported once, before forking

    del matplotlib
    global _pending
    _pending = pictures
    try:
        with warnings.catch_warnings():
            # Python warns of forking a process with threads; drawing uses none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            workers = ProcessPoolExecutor(
                min(cores, len(pictures)), multiprocessing.get_context("fork")
            )
            with workers:
                futures = [workers.submit(_draw_by_index, i) for i in range(len(pictures))]
        return [_result(future) for future in futures]
    finally:
        _pending = ()


def _draw_by_index(index: int) -> str | Failure:
    return _draw(_pending[index])


def _draw(picture: Picture) -> str | Failure:
    try:
        return write_figure(picture.draw(), picture.path)
    except ImportError:  # the user must install what is missing
        raise
    except Exception as error:
        return Failure(reason(error))


def _result(future: Future[str | Failure]) -> str | Failure:
    try:
        return future.result()
    except BrokenExecutor:
        return Failure("the process that drew it was killed, perhaps for want of memory")


def write_figure(figure: Figure, path: Path, *, pdf: bool = False) -> str:
    """Write a figure as SVG and PNG, and with ``pdf`` as PDF; return the content of the SVG file.

    ``path`` is the path of the files without their suffixes.
    """
    svg = svg_text(figure, path.name)
    write_atomically(path.with_name(f"{path.name}.svg"), svg.encode("utf-8", "backslashreplace"))
    # Keep the SVG's layout: computing it again would take half of the time.
    figure.set_layout_engine("none")
    write_png(figure, path.with_name(f"{path.name}.png"))
    if pdf:
        # Without a date, so that equal numbers make equal files.
        save_figure(figure, path.with_name(f"{path.name}.pdf"), metadata={"CreationDate": None})
    return svg


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG alone, as `write_figure` writes it."""
    save_figure(figure, path, dpi=_DPI)


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure into a file in the format of its suffix, which replaces a link there."""
    buffer = io.BytesIO()
    with quiet_fonts():
        figure.savefig(buffer, format=path.suffix[1:], **options)
    write_atomically(path, buffer.getvalue())
