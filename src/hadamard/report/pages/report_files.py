"""The files of a report: every figure and table on its page is also written to a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.pictures import Picture, draw_all
from hadamard.report.draw.svg import inline_svg
from hadamard.report.pages.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ReportFiles:
    """Collects the figures, charts and tables of a page.

    Tables are written at once. A figure is a placeholder in the HTML until `fill_in` draws all of
    them, in parallel.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.charts: list[Chart] = []
        self._pictures: dict[str, Picture] = {}  # by placeholder
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def figure(
        self, draw: Callable[[], Figure], name: str, caption: str = "", css_class: str = "wide fits"
    ) -> str:
        """Return the HTML of a figure."""
        caption_html = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return (
            f'<figure class="{css_class}"><div role="img" aria-label="{escape(caption or name)}">'
            f"{self._placeholder(draw, name)}</div>{caption_html}</figure>"
        )

    def chart(self, chart: Chart) -> str:
        """Return the HTML of a chart."""
        self.charts.append(chart)
        return charts.html(chart, self._placeholder(partial(charts.draw, chart), chart.name))

    def table(self, table: Table, css_class: str = "words") -> str:
        """Write a table and return its HTML."""
        table.write(self.folder / "tables")
        return table.html(css_class)

    def fill_in(self, html: str) -> str:
        """Draw and write all figures; return the HTML with the figures in it."""
        svgs = draw_all(list(self._pictures.values()))
        by_placeholder = dict(zip(self._pictures, svgs, strict=True))
        return re.sub(
            r"<!--figure \d+-->", lambda match: inline_svg(by_placeholder[match.group()]), html
        )

    def _placeholder(self, draw: Callable[[], Figure], name: str) -> str:
        path = self.folder / "figures" / name
        if any(picture.path == path for picture in self._pictures.values()):
            raise ValueError(f"two figures would be written to {path}: give them different names")
        placeholder = f"<!--figure {len(self._pictures)}-->"
        self._pictures[placeholder] = Picture(draw, path)
        return placeholder


def slug(text: str) -> str:
    """Return text as the name of a file.

    Examples:
        >>> slug("DQN on minatar/space_invaders")
        'dqn-on-minatar-space_invaders'
    """
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
