"""Many figures drawn and written at once, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hadamard.report.pages.document import svg_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 120
_FEW = 6
# What the worker processes find: they are copies of this one.
_waiting: Sequence[Picture] = ()


class Picture(NamedTuple):
    """A figure that is to be drawn."""

    draw: Callable[[], Figure]
    path: Path
    """Of its files, without .svg and .png."""


def draw_all(pictures: Sequence[Picture]) -> list[str]:
    """Write every picture as SVG and PNG; return the SVG files' contents."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores == 1 or len(pictures) <= _FEW or sys.platform != "linux":
        return [_drawn(picture) for picture in pictures]
    import matplotlib.figure  # once, before there are copies

    del matplotlib
    global _waiting
    _waiting = pictures
    with warnings.catch_warnings():
        # A fork with threads about is only a danger to who uses them, and drawing does not.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context("fork").Pool(min(cores, len(pictures)))
    with pool:
        drawn = pool.map(_drawn_by_number, range(len(pictures)), chunksize=1)
        pool.close()
        pool.join()
    _waiting = ()
    return drawn


def _drawn_by_number(number: int) -> str:
    return _drawn(_waiting[number])


def _drawn(picture: Picture) -> str:
    return write_figure(picture.draw(), picture.path)


def write_figure(figure: Figure, path: Path, *, pdf: bool = False) -> str:
    """Write a figure as SVG and PNG, and as PDF if asked to; return the SVG file's content.

    ``path`` is that of the files without their endings.
    """
    file = svg_file(figure, path.name)
    path.with_name(f"{path.name}.svg").write_text(file, encoding="utf-8")
    # The layout is the SVG's: to work it out once more would take as long again.
    figure.set_layout_engine("none")
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=_DPI)
    if pdf:
        # Without a date, so that the same numbers are the same file.
        figure.savefig(path.with_name(f"{path.name}.pdf"), metadata={"CreationDate": None})
    return file
