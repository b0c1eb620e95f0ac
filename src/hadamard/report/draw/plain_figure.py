"""Figures that show every text as it is: none is read as a formula, however many $ it has."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text


class PlainFigure(Figure):
    """A figure without formulas. Names of runs are its labels, and ``$\\bad{$`` is no formula."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure, see `matplotlib.figure.Figure.draw`."""
        # Ticks may be created while drawing, and read the settings then.
        with matplotlib.rc_context({"text.parse_math": False, "text.usetex": False}):
            for text in self.findobj(Text):
                text.set_parse_math(False)
                text.set_usetex(False)
            super().draw(renderer)
