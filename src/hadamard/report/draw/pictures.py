"""Figures written to files, in parallel on all cores."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hadamard.report.draw.svg import svg_text

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


def draw_all(pictures: Sequence[Picture]) -> list[str]:
    """Write every picture as SVG and PNG; return the contents of the SVG files."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores == 1 or len(pictures) <= _MAX_SEQUENTIAL or sys.platform != "linux":
        return [_draw(picture) for picture in pictures]
    import matplotlib.figure  # imported once, before forking

    del matplotlib
    global _pending
    _pending = pictures
    with warnings.catch_warnings():
        # Python warns of forking a process with threads; drawing uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context("fork").Pool(min(cores, len(pictures)))
    with pool:
        contents = pool.map(_draw_by_index, range(len(pictures)), chunksize=1)
        pool.close()
        pool.join()
    _pending = ()
    return contents


def _draw_by_index(index: int) -> str:
    return _draw(_pending[index])


def _draw(picture: Picture) -> str:
    return write_figure(picture.draw(), picture.path)


def write_figure(figure: Figure, path: Path, *, pdf: bool = False) -> str:
    """Write a figure as SVG and PNG, and with ``pdf`` as PDF; return the content of the SVG file.

    ``path`` is the path of the files without their suffixes.
    """
    svg = svg_text(figure, path.name)
    path.with_name(f"{path.name}.svg").write_text(svg, encoding="utf-8")
    # Keep the SVG's layout: computing it again would take half of the time.
    figure.set_layout_engine("none")
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=_DPI)
    if pdf:
        # Without a date, so that equal numbers make equal files.
        figure.savefig(path.with_name(f"{path.name}.pdf"), metadata={"CreationDate": None})
    return svg
