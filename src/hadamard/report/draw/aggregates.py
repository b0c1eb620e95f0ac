"""Figures of numbers that stand for many tasks: points with intervals, profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hadamard.report.draw.figures import VariantStyle, new_figure
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
    """Draw one number of every variant with its interval."""
    figure = new_figure(4.2, 1.05 + 0.27 * len(values))
    axes = figure.subplots()
    _points(axes, values, styles)
    axes.set_title(title, fontsize=10.5)
    axes.set_xlabel(unit, fontsize=9)
    return figure


def improvements(
    values: Mapping[str, Estimate], styles: Mapping[str, VariantStyle], baseline: str
) -> Figure:
    """Draw how likely a run of each variant beats one of the baseline."""
    title = f"Probability of improvement over {baseline}"
    figure = estimates(values, styles, title, "probability of a higher score on a task")
    (axes,) = figure.axes
    axes.axvline(0.5, color="#555555", linewidth=1, linestyle=":")
    axes.set_xlim(-0.02, 1.02)
    return figure


def _points(axes: Axes, values: Mapping[str, Estimate], styles: Mapping[str, VariantStyle]) -> None:
    for row, (label, (value, low, high)) in enumerate(reversed(list(values.items()))):
        colour = styles[label].colour
        if np.isfinite(low):
            axes.plot([low, high], [row, row], color=colour, linewidth=7, alpha=0.3,
                      solid_capstyle="butt")  # fmt: skip
        axes.plot([value], [row], color=colour, marker=styles[label].marker, markersize=6.5)
    axes.set_yticks(range(len(values)), list(values)[::-1])
    axes.set_ylim(-0.6, len(values) - 0.4)
    axes.grid(axis="x", color="#e3e6ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5)


def profiles(
    taus: npt.NDArray[np.float64],
    values: Mapping[str, Band],
    styles: Mapping[str, VariantStyle],
    unit: str,
) -> Figure:
    """Draw the fraction of runs above each score."""
    figure = new_figure(4.2, 3)
    axes = figure.subplots()
    for label, band in values.items():
        style = styles[label]
        if np.isfinite(band.low).any():
            axes.fill_between(taus, band.low, band.high, color=style.colour, alpha=0.15,
                              linewidth=0)  # fmt: skip
        axes.plot(taus, band.value, color=style.colour, linestyle=style.dashes, linewidth=1.8,
                  marker=style.marker, markersize=4, markevery=10, label=label)  # fmt: skip
    axes.set(title="Performance profile", ylabel="fraction of runs above", ylim=(-0.03, 1.03))
    axes.set_xlabel(unit, fontsize=9)
    axes.grid(color="#e3e6ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5)
    axes.title.set_fontsize(10.5)
    axes.yaxis.label.set_fontsize(9)
    return figure
