"""Interactive charts of curves over training, each with a static picture.

A chart is data. `draw` draws the picture for files and for browsers without scripts; `payload`
returns the data from which ``chart.js`` draws the interactive chart. Nothing is loaded from
elsewhere.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hadamard.report.data.series import FloatArray
from hadamard.report.draw.figures import (
    MOST_POINTS,
    MOST_ROWS,
    VARIANT_COLORS,
    VariantStyle,
    add_footer,
    evenly,
    finish_curve_axes,
    legend_handles,
    name_in_figure,
    new_figure,
)
from hadamard.report.draw.plain_text import escape
from hadamard.report.draw.svg import page_color
from hadamard.report.statistics.estimates import Band, mean_curve, without_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 200
"""The most points of a curve on a page."""
MAX_SEED_LINES = 10
"""Single seeds of a variant are drawn if there are at most this many."""
MIN_BAND_SEEDS = 3
"""An interval is drawn from this many seeds on: that of two seeds is 18 times their distance."""
MAX_VARIANTS_WITH_SEEDS = 4
"""Single seeds are drawn if a chart has at most this many variants: more would hide the means."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The Content-Security-Policy of a page with charts: nothing is loaded from the network."""

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, eq=False)
class Line:
    """One variant over training: the mean over its seeds and the 95 % interval of the mean."""

    label: str
    style: VariantStyle
    steps: npt.NDArray[Any]
    band: Band
    seeds: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """The values of each seed, (seeds, steps); none if single seeds are not drawn."""


@dataclass(frozen=True, eq=False)
class Chart:
    """Lines that share axes."""

    name: str
    """The name of its files, unique on a page."""
    title: str
    ylabel: str
    lines: Sequence[Line]
    xlabel: str = "training steps"
    from_zero: bool = False

    @property
    def limits(self) -> tuple[float, float]:
        """The range of values to show: means and seeds, and a part of the intervals.

        Intervals of few seeds are many times as wide as the range of the means and seeds. They are
        cut off at the edge of the chart.
        """
        if not self.lines:
            return 0.0, 1.0
        values = np.concatenate(
            [a.ravel() for line in self.lines for a in (line.band.value, line.seeds)]
        )
        values = values[np.isfinite(values)]
        if not values.size:
            return 0.0, 1.0
        low, high = float(values.min()), float(values.max())
        bounds = np.concatenate([np.ravel(b) for line in self.lines for b in line.band[1:]])
        bounds = bounds[np.isfinite(bounds)]
        room = 0.25 * ((high - low) or abs(high) or 1.0)
        if bounds.size:
            low = max(low - room, min(low, float(bounds.min())))
            high = min(high + room, max(high, float(bounds.max())))
        if self.from_zero:
            return -0.03 * (high or 1.0), 1.06 * (high or 1.0)
        edge = 0.04 * ((high - low) or abs(high) or 1.0)
        return low - edge, high + edge


def mean_line(label: str, style: VariantStyle, steps: npt.NDArray[Any], values: FloatArray) -> Line:
    """Return a variant's line from its seeds' values, (seeds, steps)."""
    any_value = np.flatnonzero(np.isfinite(values).any(axis=0))
    if any_value.size:  # cut the steps that no run has reached
        steps, values = steps[: any_value[-1] + 1], values[:, : any_value[-1] + 1]
    drawn_points = evenly(len(steps), MAX_POINTS)
    steps, values = steps[drawn_points], values[:, drawn_points]
    seeds = values if 1 < len(values) <= MAX_SEED_LINES else values[:0]
    band = mean_curve(values)
    if len(values) < MIN_BAND_SEEDS:
        band = without_interval(band.value)
    return Line(label, style, steps, band, seeds)


def uncrowded(lines: Sequence[Line]) -> list[Line]:
    """Return the lines, at most `MOST_ROWS`, without single seeds where these would hide the means.

    Lines without an interval keep their seeds.
    """
    if len(lines) <= MAX_VARIANTS_WITH_SEEDS:
        return list(lines)
    return [
        replace(line, seeds=line.seeds[:0]) if len(line.seeds) >= MIN_BAND_SEEDS else line
        for line in lines[:MOST_ROWS]
    ]


def thinned(chart: Chart) -> Chart:
    """Return a chart whose lines have at most `MOST_POINTS` points."""
    if all(len(line.steps) <= MOST_POINTS for line in chart.lines):
        return chart
    return replace(chart, lines=[_thinned(line) for line in chart.lines])


def _thinned(line: Line) -> Line:
    points = evenly(len(line.steps), MOST_POINTS)
    return replace(
        line,
        steps=line.steps[points],
        band=Band(*(part[points] for part in line.band)),
        seeds=line.seeds[:, points] if line.seeds.size else line.seeds,
    )


def draw(chart: Chart) -> Figure:
    """Draw the static picture, without a legend."""
    figure = new_figure(4, 3, (0.72, 0.12, 0.5, 0.32))
    draw_on(figure.subplots(), chart)
    return figure


def draw_on(axes: Axes, chart: Chart, with_seeds: bool = True) -> None:
    """Draw a chart on axes: thick means, thin seeds, shaded intervals."""
    chart = thinned(chart)
    for item in chart.lines:
        color, steps = item.style.color, item.steps
        if item.seeds.size and with_seeds:
            axes.plot(steps, item.seeds.T, color=color, linewidth=0.6, alpha=0.5)
        if np.isfinite(item.band.low).any():
            axes.fill_between(
                steps, item.band.low, item.band.high, color=color, alpha=0.15, linewidth=0
            )
        axes.plot(
            steps, item.band.value, color=color, linestyle=item.style.dashes, linewidth=2,
            marker=item.style.marker, markersize=4.5,
            markevery=max(1, math.ceil(len(steps) / 8)),
        )  # fmt: skip
    if not chart.lines:
        axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", fontsize=8,
                  color="#555555")  # fmt: skip
    axes.set(title=chart.title, xlabel=chart.xlabel, ylabel=chart.ylabel)
    axes.set_ylim(*chart.limits)
    finish_curve_axes(axes)


def small_multiples(
    charts: Sequence[Chart],
    legend: Mapping[str, VariantStyle],
    columns: int = 4,
    cell: tuple[float, float] = (2.6, 2.05),
    footer: str = "",
) -> Figure:
    """Draw charts in a grid with one legend above and a footer below, if it has text.

    ``cell`` is the width and height of a chart in inches.
    """
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    width = max(columns * cell[0] + 0.4, 4.2)
    names = [name_in_figure(label) for label in legend]
    per_row = max(1, int(width / (0.45 + 0.075 * max(map(len, names), default=1))))
    legend_rows = math.ceil(len(legend) / per_row)
    footer_lines = textwrap.wrap(footer, int(width * 16))
    bottom = 0.5 + 0.15 * len(footer_lines) + (0.08 if footer_lines else 0)
    top = 0.42 + 0.22 * legend_rows
    height = rows * cell[1] + bottom + top - 0.5
    figure = new_figure(width, height, (0.8, 0.18, bottom, top))
    figure.subplots_adjust(wspace=0.85 / cell[0], hspace=0.78 / cell[1])
    grid = figure.subplots(rows, columns, squeeze=False)
    is_small = cell[0] < 2.2
    for index, (axes, chart) in enumerate(zip(grid.flat, charts, strict=False)):
        draw_on(axes, chart, with_seeds=False)
        axes.set_title(chart.title, fontsize=8.5 if is_small else 10)
        is_last_row = index >= len(charts) - columns
        axes.set_xlabel(chart.xlabel if is_last_row else "", fontsize=8)
        repeats_label = index % columns and charts[index - 1].ylabel == chart.ylabel
        axes.set_ylabel("" if repeats_label else chart.ylabel, fontsize=8)
        axes.tick_params(labelsize=7 if is_small else 8)
        if is_small:
            axes.locator_params(axis="x", nbins=3)
            axes.locator_params(axis="y", nbins=4)
    for axes in grid.flat[len(charts) :]:
        axes.set_visible(False)
    handles = legend_handles(grid[0][0], legend.values())
    figure.legend(
        handles, names, loc="upper center", frameon=False, fontsize=8.5, ncols=per_row,
    )  # fmt: skip
    add_footer(figure, footer_lines)
    return figure


def styles_for(methods: Sequence[str], variants: int) -> dict[str, VariantStyle]:
    """Return dotted styles for other methods, in the colors that follow the variants'."""
    colors = [VARIANT_COLORS[(variants + i) % len(VARIANT_COLORS)] for i in range(len(methods))]
    return {
        method: VariantStyle(color, "o", ":") for method, color in zip(methods, colors, strict=True)
    }


def html(chart: Chart, picture: str) -> str:
    """Return the chart's place on a page, with its static picture until the script replaces it."""
    name = f"{chart.title}: {chart.ylabel} over {chart.xlabel}"
    return (
        f'<figure class="chart" data-chart="{escape(chart.name)}">'
        f'<div class="static" role="img" aria-label="{escape(name)}">{picture}</div></figure>'
    )


def legend_html(styles: Mapping[str, VariantStyle], swatches: Mapping[str, str]) -> str:
    """Return the legend; the script turns its entries into buttons."""
    entries = "".join(
        f'<li data-variant="{escape(label)}">{swatches[label]} {escape(label)}</li>'
        for label in styles
    )
    return f'<ul class="legend variants">{entries}</ul>'


def script_html(payloads: Iterable[str]) -> str:
    """Return the script that draws all charts, with their data, see `payload_json`."""
    data = f"[{','.join(payloads)}]"
    data = data.replace("<", "\\u003c")  # no text may end the script element
    code = (_FOLDER / "chart.js").read_text(encoding="utf-8")
    return f'<script type="application/json" id="charts">{data}</script>\n<script>{code}</script>'


def style() -> str:
    """Return the CSS of charts and of the page around them."""
    return (_FOLDER / "chart.css").read_text(encoding="utf-8")


def payload_json(chart: Chart) -> str:
    """Return a chart as JSON for the script; what JSON cannot hold, such as NaN, is an error."""
    return json.dumps(payload(chart), separators=(",", ":"), allow_nan=False)


def payload(chart: Chart) -> dict[str, Any]:
    """Return a chart as data for the script."""
    chart = thinned(chart)
    low, high = chart.limits
    return {
        "name": chart.name,
        "title": chart.title,
        "ylabel": chart.ylabel,
        "xlabel": chart.xlabel,
        "zero": chart.from_zero,
        "limits": [_rounded(low), _rounded(high)],
        "lines": [
            {
                "label": item.label,
                "color": page_color(item.style.color),
                "dashes": item.style.dashes,
                "marker": item.style.marker,
                "x": [_rounded(x, 7) for x in item.steps],
                "y": _numbers(item.band.value),
                "low": _numbers(item.band.low),
                "high": _numbers(item.band.high),
                "seeds": [_numbers(seed) for seed in item.seeds],
            }
            for item in chart.lines
        ],
    }


def _numbers(values: FloatArray) -> list[float | None]:
    """Return values rounded to the digits that a picture shows; none if none is finite."""
    if not np.isfinite(values).any():
        return []
    return [_rounded(value) if math.isfinite(value) else None for value in values.tolist()]


def _rounded(value: float, digits: int = 4) -> float:
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
