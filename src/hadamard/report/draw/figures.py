"""Figures, drawn without touching matplotlib's global state, and the style they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hadamard.report.draw.plain_text import LONGEST_IN_FIGURE, plain
from hadamard.text import install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Grid = Literal["x", "y", "both"]
Item = TypeVar("Item")

# Okabe and Ito's palette: its colors differ for every kind of color vision, and in gray.
BLUE, SKY, ORANGE, VERMILLION = "#0072B2", "#56B4E9", "#E69F00", "#D55E00"
GREEN, PURPLE, GRAY = "#009E73", "#CC79A7", "#8a8f98"
NETWORK_COLORS = (BLUE, ORANGE, GREEN, PURPLE)
RED = "#c1121f"
VARIANT_COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, "#1d2129", GRAY)
_VARIANT_MARKERS = "osD^vPXp"
_VARIANT_DASHES = ("-", "--", ":", "-.")

MOST_ROWS = 40
"""Variants in a figure, in a chart or in a legend."""
MOST_POINTS = 500
"""Points of a curve."""
_MOST_SEEDS = 50
_MOST_TASKS = 20


class VariantStyle(NamedTuple):
    """The look of a variant's line; markers and dashes distinguish lines without color."""

    color: str
    marker: str
    dashes: str


@dataclass(frozen=True)
class Curve:
    """One variant's values over training."""

    style: VariantStyle
    steps: npt.NDArray[Any]
    values: npt.NDArray[np.float64]
    """(seeds, steps); NaN where there is no value."""


def new_figure(
    width: float, height: float, margins: Sequence[float] = (), *, formulas: bool = False
) -> Figure:
    """Return an empty figure.

    ``margins`` are left, right, bottom and top in inches. Without them matplotlib computes a
    layout, which doubles the drawing time. Only with ``formulas`` is text between $ a formula:
    names of runs must never be.
    """
    try:
        from matplotlib.figure import Figure

        from hadamard.report.draw.plain_figure import PlainFigure
    except ImportError as error:
        raise ImportError(f"figures need matplotlib: {install('report')}") from error
    kind = Figure if formulas else PlainFigure
    if not margins:
        return kind(figsize=(width, height), layout="constrained")
    figure = kind(figsize=(width, height))
    left, right, bottom, top = margins
    figure.subplots_adjust(
        left / width, bottom / height, 1 - right / width, 1 - top / height, wspace=0.12, hspace=0.4
    )
    return figure


def finish_axes(axes: Axes, grid: Grid | None = None) -> None:
    """Give axes their grid and font sizes, and remove their frame."""
    style_axes(axes, grid)
    axes.title.set_fontsize(10.5)
    axes.xaxis.label.set_fontsize(9)


def style_axes(axes: Axes, grid: Grid | None = None, ticks: float = 9) -> None:
    """Give axes their grid, and remove their frame; ``ticks`` is the font size of tick labels."""
    if grid:
        axes.grid(axis=grid, color="#e3e6ea", linewidth=0.7)
        axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=ticks)


def first(items: Sequence[Item], most: int) -> tuple[list[Item], str]:
    """Return the first items, and words for how many there are if not all are shown.

    Examples:
        >>> first("abc", 5), first("abc", 2)
        ((['a', 'b', 'c'], ''), (['a', 'b'], 'first 2 of 3'))
    """
    cut = f"first {most} of {len(items):,}" if len(items) > most else ""
    return list(items[:most]), cut


def evenly(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most so many indices of a list, evenly spread from its first to its last.

    Examples:
        >>> evenly(3, 5), evenly(9, 3)
        (array([0, 1, 2]), array([0, 4, 8]))
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def name_in_figure(name: str) -> str:
    """Return a name as a figure shows it: short, and never hidden from a legend."""
    text = plain(name, LONGEST_IN_FIGURE)
    return f" {text}" if text.startswith("_") else text  # matplotlib's mark of what is hidden


def add_footer(figure: Figure, lines: Sequence[str]) -> None:
    """Write lines at the bottom of a figure, whose bottom margin must have room for them."""
    if lines:
        figure.text(
            0.5, 0.05 / figure.get_figheight(), "\n".join(lines), ha="center", va="bottom",
            fontsize=7, color="#555555",
        )  # fmt: skip


def variant_style(number: int) -> VariantStyle:
    """Return the style of the variant with this number.

    The first eight differ in color, each further eight in their dashes; the 33rd is the first
    again.
    """
    cycle = number // len(VARIANT_COLORS)
    return VariantStyle(
        VARIANT_COLORS[number % len(VARIANT_COLORS)],
        _VARIANT_MARKERS[number % len(_VARIANT_MARKERS)],
        _VARIANT_DASHES[cycle % len(_VARIANT_DASHES)],
    )


def swatch(style: VariantStyle) -> Figure:
    """Draw a short line in a variant's style, for a legend."""
    figure = new_figure(0.45, 0.2)
    figure.set_layout_engine("none")  # the axes fill the figure
    axes = figure.add_axes((0, 0, 1, 1))
    axes.plot(
        [0, 1, 2], [0, 0, 0], color=style.color, linestyle=style.dashes, linewidth=2,
        marker=style.marker, markersize=6, markevery=[1], clip_on=False,
    )  # fmt: skip
    axes.set_axis_off()
    return figure


class Panel(NamedTuple):
    """Curves that share an axis."""

    lines: Sequence[Curve]
    title: str
    ylabel: str
    from_zero: bool = False


def curves(lines: Sequence[Curve], title: str, ylabel: str, from_zero: bool = False) -> Figure:
    """Draw variants over training as a single panel, see `draw_panel`."""
    figure = new_figure(4, 3)
    draw_panel(figure.subplots(), Panel(lines, title, ylabel, from_zero))
    return figure


def panels(rows: Mapping[str, Sequence[Panel]], legend: Mapping[str, VariantStyle]) -> Figure:
    """Draw rows of panels with one legend; each row's name is at its left."""
    shown, cut = first(list(rows.items()), _MOST_TASKS)
    columns = max(len(row) for _, row in shown)
    figure = new_figure(3.1 * columns, 2.6 * len(shown) + 0.4)
    grid = figure.subplots(len(shown), columns, squeeze=False)
    for axes_row, (name, row) in zip(grid, shown, strict=True):
        for axes, panel in zip(axes_row, row, strict=False):
            draw_panel(axes, panel)
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
        left = axes_row[0]
        left.set_ylabel(f"{name_in_figure(name)}\n{left.get_ylabel()}", fontsize=9)
    if cut:
        figure.supxlabel(f"the {cut} tasks", fontsize=9)
    labels, _ = first(list(legend), MOST_ROWS)
    names = [name_in_figure(label) for label in labels]
    per_row = max(1, min(len(names), int(3.1 * columns / (0.5 + 0.08 * max(map(len, names))))))
    handles = legend_handles(grid[0][0], [legend[label] for label in labels])
    figure.legend(handles, names, loc="outside upper center", ncols=per_row, frameon=False)
    return figure


def legend_handles(axes: Axes, styles: Iterable[VariantStyle]) -> list[Line2D]:
    """Add empty lines in these styles to the axes and return them, for a legend."""
    return [
        axes.plot(
            [], [], color=style.color, linestyle=style.dashes, marker=style.marker, linewidth=2
        )[0]
        for style in styles
    ]


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw variants over training: a thick mean over seeds, thin seeds, and their shaded range.

    Mean and range are drawn only where every seed has a value: a mean over fewer seeds would jump
    where a seed ends.
    """
    all_lines, title, ylabel, from_zero = panel
    lines, cut = first(all_lines, MOST_ROWS)
    for line in lines:
        points = evenly(len(line.steps), MOST_POINTS)
        color, x, seeds = line.style.color, line.steps[points], line.values[:, points]
        for values in seeds[:_MOST_SEEDS]:
            axes.plot(x, values, color=color, linewidth=0.7, alpha=0.6)
        axes.fill_between(
            x, seeds.min(axis=0), seeds.max(axis=0),
            color=color, alpha=0.15, linewidth=0,
        )  # fmt: skip
        axes.plot(
            x, seeds.mean(axis=0), color=color, linestyle=line.style.dashes, linewidth=2,
            marker=line.style.marker, markersize=4.5, markevery=max(1, math.ceil(len(x) / 10)),
        )  # fmt: skip
    title = f"{title}\n{cut} variants" if cut else title
    axes.set(title=title, xlabel="training steps", ylabel=ylabel)
    if from_zero:
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.03 * top, top)
    finish_curve_axes(axes)


def finish_curve_axes(axes: Axes) -> None:
    """Finish axes with curves over training: limits, ticks, grid and font sizes."""
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(_short_steps)
    finish_axes(axes, grid="y")
    axes.yaxis.label.set_fontsize(9)


def _short_steps(value: float, _: Any = None) -> str:
    """Return a number of steps for an axis: 200k, 2.5M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"
