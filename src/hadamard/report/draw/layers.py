"""Figures of layers: dormant neurons, effective rank, and what the next layer receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hadamard.report.draw.figures import (
    GRAY,
    MOST_ROWS,
    NETWORK_COLORS,
    SKY,
    VERMILLION,
    finish_axes,
    first,
    name_in_figure,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LAYERS = 200
"""Layers in a figure."""


def health(diagnoses: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw dormant neurons, effective rank and hidden bias of one or more networks."""
    labels = [(network, layer) for network, d in diagnoses.items() for layer in d["layers"]]
    labels, cut = first(labels, MOST_LAYERS)
    labels = labels[::-1]  # row 0 is at the bottom
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
        names = [f"{name_in_figure(layer['name'])}  ({name_in_figure(n)})" for n, layer in labels]
    else:
        names = [name_in_figure(layer["name"]) for _, layer in labels]
    left.set_yticks(rows, names)
    left.set_ylim(-0.6, len(labels) - 0.4)
    for axes in (left, middle, right):
        finish_axes(axes)
    if cut:
        figure.suptitle(f"The {cut} layers", fontsize=9)
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


def contributions(parts: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw what the next layer receives, one bar for each name, from top to bottom.

    ``parts`` has the ``live_contribution``, ``dormant_contribution`` and ``bias_contribution`` of
    each name.
    """
    shown, cut = first(list(parts), MOST_ROWS)
    names = shown[::-1]
    figure = new_figure(4.6, 1.35 + 0.36 * len(names))
    axes = figure.subplots()
    rows = np.arange(len(names))
    _contributions(axes, rows, [parts[name] for name in names])
    axes.set_yticks(rows, [name_in_figure(name) for name in names])
    if cut:
        axes.set_ylabel(f"the {cut}", fontsize=8)
    finish_axes(axes)
    return figure
