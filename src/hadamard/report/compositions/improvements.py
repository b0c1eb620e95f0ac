"""By how much HR improves each algorithm, in percent: Figure 1."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.compositions import Composed, Drawing, score_axis
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw.figures import add_footer, new_figure, variant_style
from hadamard.report.pages.tables import Table
from hadamard.report.statistics.difference import Difference, difference
from hadamard.report.statistics.estimates import report_generator
from hadamard.report.statistics.run_values import SCORE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compose(drawing: Drawing) -> Composed:
    """Draw the change of each algorithm's score as a bar with its interval."""
    changes: dict[str, Difference | None] = {}
    for algorithm, data in drawing.panels.items():
        scores = data.finals(SCORE)
        with_hr = scores.get(data.panel.arms[1].label)
        baseline = scores.get(data.panel.baseline.label)
        if not with_hr or not baseline:
            changes[algorithm] = None
            continue
        changes[algorithm] = difference(
            with_hr, baseline, data.panel.aggregations[0], unit="percent", rng=report_generator()
        )
    return Composed(
        partial(_draw, drawing, changes),
        "Change of each algorithm's score by HR, in percent of its baseline's; bars: 95 % "
        "intervals of the paired difference. "
        + " ".join(
            f"{algorithm_name(name)}: {data.panel.arms[1].label} against "
            f"{data.panel.baseline.label}, {score_axis(data)}."
            for name, data in drawing.panels.items()
        ),
        [_table(drawing, changes)],
    )


def _draw(drawing: Drawing, changes: dict[str, Difference | None]) -> Figure:
    footer = textwrap.wrap(drawing.footer([SCORE]), 96)
    figure = new_figure(6, 2.9 + 0.15 * len(footer), (0.75, 0.15, 0.45 + 0.15 * len(footer), 0.2))
    axes = figure.subplots()
    for place, change in enumerate(changes.values()):
        if change is None:
            axes.annotate("no runs", (place, 0), xytext=(0, 4), textcoords="offset points",
                          ha="center", fontsize=8, color="#555555")  # fmt: skip
            continue
        value, low, high = change.estimate
        axes.bar(place, value, width=0.6, color=variant_style(1).color, alpha=0.85)
        if np.isfinite(low):
            axes.plot([place, place], [low, high], color="#1d2129", linewidth=1.6)
        top = max(value, high if np.isfinite(high) else value, 0)
        axes.annotate(f"{value:+.0f} %", (place, top), xytext=(0, 4), textcoords="offset points",
                      ha="center", fontsize=9)  # fmt: skip
    axes.axhline(0, color="#555555", linewidth=1)
    axes.margins(y=0.15)
    axes.set_xticks(range(len(changes)), [algorithm_name(name) for name in changes])
    axes.set_ylabel("change of the score by HR (%)", fontsize=9)
    axes.grid(axis="y", color="#e3e6ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=9)
    add_footer(figure, footer)
    return figure


def _table(drawing: Drawing, changes: dict[str, Difference | None]) -> Table:
    shown: dict[str, list[str]] = {}
    data: dict[str, list[object]] = {}
    for algorithm, change in changes.items():
        panel = drawing.panels[algorithm]
        value, low, high = change.estimate if change is not None else (float("nan"),) * 3
        words = "–" if change is None else f"{value:+.1f} %"
        if np.isfinite(low):
            words += f" ({low:+.1f} to {high:+.1f})"
        cells = {
            "algorithm": algorithm_name(algorithm),
            "with HR": panel.panel.arms[1].label,
            "against": panel.panel.baseline.label,
            "change": words,
        }
        numbers = {
            "algorithm": algorithm,
            "arm": panel.panel.arms[1].label,
            "against": panel.panel.baseline.label,
            "aggregation": panel.panel.aggregations[0],
            "change_percent": value,
            "low": low,
            "high": high,
            "tasks": len(panel.tasks),
            "steps": panel.end,
        }
        for name, text in cells.items():
            shown.setdefault(name, []).append(text)
        for name, number in numbers.items():
            data.setdefault(name, []).append(number)
    caption = f"{drawing.experiment.place}: change of the score by HR, with 95 % intervals"
    return Table("numbers", caption, shown, data)
