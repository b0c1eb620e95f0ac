"""Figures as SVG: files, and elements of a page in its light or dark colors."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The page's colors that replace a figure's black and grays.
_PAGE_COLORS = {
    "#000000": "currentColor",
    "#1d2129": "currentColor",
    "#222222": "currentColor",
    "#555555": "var(--soft)",
    "#e3e6ea": "var(--line)",
    "#c8ccd2": "var(--line)",
}
_SHADES = re.compile("|".join(_PAGE_COLORS))
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_DIGITS = re.compile(r"(\d\.\d\d)\d+")  # beyond the two decimals that are visible


def inline_figure(figure: Figure, name: str) -> str:
    """Return a figure as an element of a page, see `inline_svg`."""
    return inline_svg(svg_text(figure, name))


def svg_text(figure: Figure, name: str) -> str:
    """Return the content of an SVG file: text stays text, and ids depend on ``name`` alone."""
    import matplotlib

    buffer = io.StringIO()
    with quiet_fonts(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    return buffer.getvalue()


@contextlib.contextmanager
def quiet_fonts() -> Iterator[None]:
    """Draw characters that the font lacks, such as emoji, as boxes without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def inline_svg(svg: str) -> str:
    """Return the content of an SVG file as an element of a page, in the page's colors.

    Only tags change: their colors, and their coordinates, which are cut to two decimals.
    """
    element = _METADATA.sub("", svg[svg.index("<svg") :])
    return _TAG.sub(lambda tag: _inline_tag(tag.group()), element)


def _inline_tag(tag: str) -> str:
    return _SHADES.sub(lambda shade: _PAGE_COLORS[shade.group()], _DIGITS.sub(r"\1", tag))


def page_color(color: str) -> str:
    """Return the color that a page shows in place of a figure's color."""
    return _PAGE_COLORS.get(color, color)
