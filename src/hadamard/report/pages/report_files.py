"""The files of a report: every figure and table on its page is also written to a file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hadamard.core.files import make_folder
from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.pictures import Failure, Picture, draw_all
from hadamard.report.draw.plain_text import escape, reason
from hadamard.report.draw.svg import inline_svg
from hadamard.report.pages.left_out import MOST_FIGURES, Omissions, too_many_figures
from hadamard.report.pages.output import make_output_folder
from hadamard.report.pages.tables import Table

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

_LONGEST_SLUG = 80


class ReportFiles:
    """Collects the figures, charts and tables of a page.

    Tables are written at once. A figure is a placeholder in the HTML until `draw` has drawn all of
    them, in parallel, and `fill_in` replaces it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = make_output_folder(folder)
        for name in ("figures", "tables"):
            make_folder(self.folder / name)
        self.omissions = Omissions()
        self.chart_data: list[str] = []
        """The charts as JSON for the script."""
        self._pictures: dict[str, Picture] = {}  # by placeholder
        self._figure_names: set[str] = set()
        self._table_names: set[str] = set()
        self._not_drawn = 0
        self._html: dict[str, str] = {}  # by placeholder

    def figure(
        self, draw: Callable[[], Figure], name: str, caption: str = "", css_class: str = "wide fits"
    ) -> str:
        """Return the HTML of a figure; nothing if there are `MOST_FIGURES` already."""
        if self._is_full():
            return ""
        name = _unique(name, self._figure_names)
        caption_html = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return (
            f'<figure class="{css_class}"><div role="img" aria-label="{escape(caption or name)}">'
            f"{self._placeholder(draw, name)}</div>{caption_html}</figure>"
        )

    def chart(self, chart: Chart) -> str:
        """Return the HTML of a chart; nothing if there are `MOST_FIGURES` figures already."""
        if self._is_full():
            return ""
        chart = replace(chart, name=_unique(chart.name, self._figure_names))
        try:
            self.chart_data.append(charts.payload_json(chart))
        except Exception as error:
            return self.omissions.failed(f"The chart {chart.name}", reason(error))
        return charts.html(chart, self._placeholder(partial(charts.draw, chart), chart.name))

    def table(self, table: Table, css_class: str = "words") -> str:
        """Write a table and return its HTML."""
        replace(table, name=_unique(table.name, self._table_names)).write(self.folder / "tables")
        return table.html(css_class)

    def draw(self) -> None:
        """Draw and write all figures."""
        pictures = draw_all(list(self._pictures.values()))
        for (placeholder, picture), svg in zip(self._pictures.items(), pictures, strict=True):
            if isinstance(svg, Failure):
                html = self.omissions.failed(f"The figure {picture.path.name}", svg.reason)
            else:
                html = inline_svg(svg)
            self._html[placeholder] = html
        if self._not_drawn:
            self.omissions.note(too_many_figures(self._not_drawn))

    def fill_in(self, html: str) -> str:
        """Return the HTML of a page with the drawn figures in it."""
        return re.sub(r"<!--figure \d+-->", lambda match: self._html[match.group()], html)

    def _is_full(self) -> bool:
        if len(self._pictures) < MOST_FIGURES:
            return False
        self._not_drawn += 1
        return True

    def _placeholder(self, draw: Callable[[], Figure], name: str) -> str:
        placeholder = f"<!--figure {len(self._pictures)}-->"
        self._pictures[placeholder] = Picture(draw, self.folder / "figures" / name)
        return placeholder


def _unique(name: str, names: set[str]) -> str:
    """Return a name that is not among some names, and add it to them."""
    number, unique = 1, name
    while unique in names:
        number += 1
        unique = f"{name}-{number}"
    names.add(unique)
    return unique


def slug(text: str) -> str:
    """Return text as the name of a file; what is cut is replaced by digits of its own.

    Examples:
        >>> slug("DQN on minatar/space_invaders")
        'dqn-on-minatar-space_invaders'
    """
    name = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
    if len(name) <= _LONGEST_SLUG:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_SLUG - 9]}-{digest}"
