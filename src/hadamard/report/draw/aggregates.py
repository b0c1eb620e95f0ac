"""Figures of aggregates over tasks: numbers with intervals, performance profiles."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hadamard.report.data.series import FloatArray
from hadamard.report.draw.figures import (
    BLUE,
    MOST_ROWS,
    VERMILLION,
    VariantStyle,
    add_footer,
    first,
    name_in_figure,
    new_figure,
    style_axes,
)
from hadamard.report.statistics.estimates import Band, Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def estimates(
    values: Mapping[str, Estimate],
    styles: Mapping[str, VariantStyle],
    title: str,
    unit: str,
) -> Figure:
    """Draw one number per variant with its interval."""
    labels, cut = first(list(values), MOST_ROWS)
    figure = new_figure(4.2, 1.05 + 0.27 * len(labels))
    axes = figure.subplots()
    _points(axes, {label: values[label] for label in labels}, styles)
    axes.set_title(f"{title}\nthe {cut} variants" if cut else title, fontsize=10.5)
    axes.set_xlabel(unit, fontsize=9)
    return figure


def improvements(
    values: Mapping[str, Estimate], styles: Mapping[str, VariantStyle], baseline: str
) -> Figure:
    """Draw the probability that a run of each variant beats a run of the baseline."""
    title = f"Probability of improvement over {name_in_figure(baseline)}"
    figure = estimates(values, styles, title, "probability of a higher score on a task")
    (axes,) = figure.axes
    axes.axvline(0.5, color="#555555", linewidth=1, linestyle=":")
    axes.set_xlim(-0.02, 1.02)
    return figure


def _points(axes: Axes, values: Mapping[str, Estimate], styles: Mapping[str, VariantStyle]) -> None:
    for row, (label, (value, low, high)) in enumerate(reversed(list(values.items()))):
        color = styles[label].color
        _interval(axes, row, low, high, color)
        axes.plot([value], [row], color=color, marker=styles[label].marker, markersize=6.5)
    _finish_rows(axes, list(values))


def _interval(axes: Axes, row: int, low: float, high: float, color: str) -> None:
    if np.isfinite(low):
        axes.plot([low, high], [row, row], color=color, linewidth=7, alpha=0.3,
                  solid_capstyle="butt")  # fmt: skip


def _finish_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows from top to bottom."""
    axes.set_yticks(range(len(labels)), [name_in_figure(label) for label in labels[::-1]])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    style_axes(axes, grid="x", ticks=8.5)


def profiles(
    taus: FloatArray,
    values: Mapping[str, Band],
    styles: Mapping[str, VariantStyle],
    unit: str,
) -> Figure:
    """Draw the fraction of runs above each score."""
    figure = new_figure(4.2, 3)
    axes = figure.subplots()
    labels, cut = first(list(values), MOST_ROWS)
    for label in labels:
        band, style = values[label], styles[label]
        if np.isfinite(band.low).any():
            axes.fill_between(taus, band.low, band.high, color=style.color, alpha=0.15,
                              linewidth=0)  # fmt: skip
        axes.plot(taus, band.value, color=style.color, linestyle=style.dashes, linewidth=1.8,
                  marker=style.marker, markersize=4, markevery=10)  # fmt: skip
    title = f"Performance profile, {cut} variants" if cut else "Performance profile"
    axes.set(title=title, ylabel="fraction of runs above", ylim=(-0.03, 1.03))
    axes.set_xlabel(unit, fontsize=9)
    style_axes(axes, grid="both", ticks=8.5)
    axes.title.set_fontsize(10.5)
    axes.yaxis.label.set_fontsize(9)
    return figure


class Mark(NamedTuple):
    """A number of ours with its interval, and the paper's number if it states one."""

    label: str
    value: float
    low: float
    high: float
    paper: float | None = None


def beside_paper(groups: Mapping[str, Sequence[Mark]], footer: str = "") -> Figure:
    """Draw our numbers with their intervals, the paper's as diamonds, and a panel per group."""
    rows = max([1, *map(len, groups.values())])
    footer_lines = textwrap.wrap(footer, 50 * max(1, len(groups)) + 30)
    height = 1.35 + 0.32 * rows + 0.15 * len(footer_lines)
    width = 2.9 * max(1, len(groups)) + 1.0
    margins = (1.2, 0.15, 0.55 + 0.15 * len(footer_lines), 0.55)
    figure = new_figure(width, height, margins)
    figure.subplots_adjust(wspace=0.5)
    panels = figure.subplots(1, max(1, len(groups)), squeeze=False)[0]
    for axes, (title, marks) in zip(panels, groups.items(), strict=False):
        for row, mark in enumerate(reversed(marks)):
            _interval(axes, row, mark.low, mark.high, BLUE)
            if np.isfinite(mark.value):
                axes.plot([mark.value], [row], "o", color=BLUE, markersize=6)
            if mark.paper is not None:
                axes.plot([mark.paper], [row], "D", color=VERMILLION, markersize=5.5,
                          markerfacecolor="none", markeredgewidth=1.5)  # fmt: skip
        _finish_rows(axes, [mark.label for mark in marks])
        axes.set_title(title, fontsize=9.5)
        axes.margins(x=0.12)
    figure.text(0.01, 1 - 0.18 / height, "● ours (95 % interval)   ◇ the paper", fontsize=7.5,
                color="#555555")  # fmt: skip
    add_footer(figure, footer_lines)
    return figure


def forest(
    columns: Mapping[str, Mapping[str, Estimate]], unit: str, footer: str, around: float = 0.0
) -> Figure:
    """Draw numbers with intervals: a chart for each column, a row for each of its labels."""
    labels = list(dict.fromkeys(label for values in columns.values() for label in values))
    lines = textwrap.wrap(footer, 34 + 28 * max(1, len(columns)))
    below = 0.5 + 0.15 * len(lines)
    size = 2.0 + 2.1 * max(1, len(columns)), 0.75 + 0.24 * len(labels) + below
    figure = new_figure(*size, (1.9, 0.15, below, 0.45))
    charts = np.atleast_1d(figure.subplots(1, max(1, len(columns)), sharey=True))
    for axes, (title, values) in zip(charts, columns.items(), strict=False):
        for row, label in enumerate(reversed(labels)):
            if label in values:
                value, low, high = values[label]
                _interval(axes, row, low, high, BLUE)
                axes.plot([value], [row], color=BLUE, marker="o", markersize=5)
        axes.axvline(around, color="#555555", linewidth=1, linestyle=":")
        axes.set_xlim(-1.05, 1.05)
        axes.set_title(title, fontsize=9.5)
        axes.set_xlabel(unit, fontsize=8.5)
        _finish_rows(axes, labels)
    add_footer(figure, lines)
    return figure
