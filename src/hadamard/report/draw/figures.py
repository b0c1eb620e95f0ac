"""Figures, drawn without touching matplotlib's global state, and the style they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hadamard.report.data.kde_grid import KdeGrid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

Grid = Literal["x", "y", "both"]

# Okabe and Ito's palette: its colors differ for every kind of color vision, and in gray.
BLUE, SKY, ORANGE, VERMILLION = "#0072B2", "#56B4E9", "#E69F00", "#D55E00"
GREEN, PURPLE, GRAY = "#009E73", "#CC79A7", "#8a8f98"
NETWORK_COLORS = (BLUE, ORANGE, GREEN, PURPLE)
RED = "#c1121f"
VARIANT_COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, "#1d2129", GRAY)
_VARIANT_MARKERS = "osD^vPXp"
_VARIANT_DASHES = ("-", "--", ":", "-.")


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


def new_figure(width: float, height: float, margins: Sequence[float] = ()) -> Figure:
    """Return an empty figure.

    ``margins`` are left, right, bottom and top in inches. Without them matplotlib computes a
    layout, which doubles the drawing time.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'hadamard-rl[report]'") from error
    if not margins:
        return Figure(figsize=(width, height), layout="constrained")
    figure = Figure(figsize=(width, height))
    left, right, bottom, top = margins
    figure.subplots_adjust(
        left / width, bottom / height, 1 - right / width, 1 - top / height, wspace=0.12, hspace=0.4
    )
    return figure


def health(diagnoses: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw dormant neurons, effective rank and hidden bias of one or more networks."""
    # Row 0 is at the bottom, so the list is reversed: the first network's first layer is on top.
    labels = [(network, layer) for network, d in diagnoses.items() for layer in d["layers"]][::-1]
    figure = new_figure(11, 1.7 + 0.36 * len(labels))
    left, middle, right = figure.subplots(1, 3, sharey=True)
    rows = np.arange(len(labels))
    color = dict(zip(diagnoses, NETWORK_COLORS * len(diagnoses), strict=False))
    colors = [color[network] for network, _ in labels]
    layers = [layer for _, layer in labels]

    _bars(left, rows, [100 * layer["dormant_fraction"] for layer in layers], colors)
    left.set(title="Dormant neurons", xlabel="share of the layer (%)", xlim=(0, 100))
    ranks = [100 * layer["effective_rank"] / layer["full_rank"] for layer in layers]
    notes = [f"{layer['effective_rank']}/{layer['full_rank']}" for layer in layers]
    _bars(middle, rows, ranks, colors, notes)
    middle.set(title="Effective rank", xlabel="share of the possible rank (%)", xlim=(0, 100))
    _contributions(right, rows, layers)

    if len(diagnoses) > 1:
        names = [f"{layer['name']}  ({network})" for network, layer in labels]
    else:
        names = [layer["name"] for _, layer in labels]
    left.set_yticks(rows, names)
    left.set_ylim(-0.6, len(labels) - 0.4)
    for axes in (left, middle, right):
        _finish(axes)
    return figure


def _bars(
    axes: Axes, rows: Any, values: list[float], colors: list[str], notes: list[str] | None = None
) -> None:
    axes.barh(rows, values, color=colors, height=0.62)
    for row, value, note in zip(rows, values, notes or [f"{v:.1f}" for v in values], strict=True):
        inside = value > 75
        axes.annotate(
            note,
            (value, row),
            xytext=(-4 if inside else 4, 0),
            textcoords="offset points",
            ha="right" if inside else "left",
            va="center",
            fontsize=8,
            color="white" if inside else "#222",
        )


def _contributions(axes: Axes, rows: Any, layers: list[Mapping[str, Any]]) -> None:
    parts = ("live", "dormant", "bias")
    values = np.array(
        [[layer[f"{part}_contribution"] or 0.0 for part in parts] for layer in layers]
    )
    totals = values.sum(axis=1, keepdims=True)
    shares = 100 * np.divide(values, totals, out=np.zeros_like(values), where=totals > 0)
    start = np.zeros(len(layers))
    names = ("live neurons", "dormant neurons (hidden bias)", "own bias")
    for share, color, name in zip(shares.T, (SKY, VERMILLION, GRAY), names, strict=True):
        axes.barh(rows, share, left=start, color=color, height=0.62, label=name)
        start += share
    for row, layer in zip(rows, layers, strict=True):
        if layer["live_contribution"] is None:
            note = "no affine layer reads this directly"
            axes.text(2, row, note, va="center", fontsize=7.5, color="#555")
    axes.set(title="What the next layer receives", xlabel="share of absolute contribution (%)")
    axes.set_xlim(0, 100)
    axes.figure.legend(
        loc="outside lower right", ncols=3, frameon=False, fontsize=8, handlelength=1
    )


def _finish(axes: Axes, grid: Grid | None = None) -> None:
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


def kde_grid(grid: KdeGrid) -> Figure:
    """Draw each neuron's density in a cell of its own; dormant neurons' cells have red outlines."""
    columns = min(4, len(grid.neurons))
    rows = math.ceil(len(grid.neurons) / columns)
    width, height = 1.9 * columns + 0.3, 1.35 * rows + 0.7
    figure = new_figure(width, height, (0.4, 0.1, 0.55, 0.6))
    draw_densities(figure, grid, 0.55 / height, 1 - 0.6 / height, 0.4 / width, 1 - 0.1 / width)
    figure.suptitle(grid.title, fontsize=10.5, y=1 - 0.12 / height)
    figure.supxlabel("activation", fontsize=9, y=0.1 / height)
    figure.supylabel("density", fontsize=9)
    return figure


def draw_densities(
    figure: Figure | SubFigure,
    grid: KdeGrid,
    bottom: float,
    top: float,
    left: float = 0.08,
    right: float = 0.98,
) -> None:
    """Draw a grid of densities into a figure or a subfigure."""
    count = len(grid.neurons)
    columns = min(4, count)
    figure.subplots_adjust(left, bottom, right, top, wspace=0.12, hspace=0.75)
    cells = np.atleast_1d(figure.subplots(math.ceil(count / columns), columns)).ravel()
    for cell in cells[count:]:
        cell.set_visible(False)
    for i, cell in enumerate(cells[:count]):
        color = RED if grid.dormant[i] else BLUE
        places, density = grid.places[i], grid.density[i]
        if grid.bounded:
            # All cells share one axis, so a spike at -1 or +1 stands at the edge.
            places = np.concatenate([[-1.25], places, [1.25]])
            density = np.concatenate([[0.0], density, [0.0]])
            cell.set_xlim(-1.25, 1.25)
            cell.set_xticks([-1, 0, 1])
        cell.fill_between(places, density, color=color, alpha=0.25, linewidth=0)
        cell.plot(places, density, color=color, linewidth=1.1)
        cell.set_ylim(0, 1.25 * float(density.max()))
        cell.set_yticks([])
        cell.tick_params(labelsize=7, length=2)
        cell.set_title(
            f"neuron {grid.neurons[i]}, peak {density.max():.3g}", fontsize=6.5, color="#222", pad=3
        )
        for spine in cell.spines.values():
            spine.set_color(RED if grid.dormant[i] else "#c8ccd2")
            spine.set_linewidth(2.2 if grid.dormant[i] else 0.8)


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
    columns = max(map(len, rows.values()))
    figure = new_figure(3.1 * columns, 2.6 * len(rows) + 0.4)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes_row, (name, row) in zip(grid, rows.items(), strict=True):
        for axes, panel in zip(axes_row, row, strict=False):
            draw_panel(axes, panel)
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
        first = axes_row[0]
        first.set_ylabel(f"{name}\n{first.get_ylabel()}", fontsize=9)
    handles = legend_handles(grid[0][0], legend.values())
    figure.legend(
        handles, list(legend), loc="outside upper center", ncols=len(legend), frameon=False
    )
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
    lines, title, ylabel, from_zero = panel
    for line in lines:
        color, x = line.style.color, line.steps
        for values in line.values:
            axes.plot(x, values, color=color, linewidth=0.7, alpha=0.6)
        axes.fill_between(
            x, line.values.min(axis=0), line.values.max(axis=0),
            color=color, alpha=0.15, linewidth=0,
        )  # fmt: skip
        axes.plot(
            x, line.values.mean(axis=0), color=color, linestyle=line.style.dashes, linewidth=2,
            marker=line.style.marker, markersize=4.5, markevery=max(1, math.ceil(len(x) / 10)),
        )  # fmt: skip
    axes.set(title=title, xlabel="training steps", ylabel=ylabel)
    if from_zero:
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.03 * top, top)
    finish_curve_axes(axes)


def finish_curve_axes(axes: Axes) -> None:
    """Finish axes with curves over training: limits, ticks, grid and font sizes."""
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(_short_steps)
    _finish(axes, grid="y")
    axes.yaxis.label.set_fontsize(9)


def _short_steps(value: float, _: Any = None) -> str:
    """Return a number of steps for an axis: 200k, 2.5M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def contributions(parts: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw what the next layer receives, one bar for each name, from top to bottom.

    ``parts`` has the ``live_contribution``, ``dormant_contribution`` and ``bias_contribution`` of
    each name.
    """
    names = list(parts)[::-1]
    figure = new_figure(4.6, 1.35 + 0.36 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    _contributions(axes, rows, [parts[name] for name in names])
    axes.set_yticks(rows, names)
    _finish(axes)
    return figure
