"""What additions to a network change, each against the network without it: our study of remedies.

An arm is compared with the one whose label, continued by "+ something", makes its own.
"""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hadamard.report.compositions import (
    Composed,
    Drawing,
    estimate_words,
    measure_words,
    score_axis,
)
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw.figures import add_footer, new_figure, style_axes, variant_style
from hadamard.report.measures import MEASURES
from hadamard.report.pages.tables import Table
from hadamard.report.statistics.difference import Difference, difference
from hadamard.report.statistics.estimates import report_generator
from hadamard.report.statistics.panel import PanelRuns
from hadamard.report.statistics.run_values import SCORE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEALTH = ("dormant_fraction", "effective_rank")


class _Row(NamedTuple):
    """An arm, and what it changes against the arm without its addition."""

    arm: str
    base: str
    """Empty for an arm that is an addition to no other."""
    network: str
    """The arm without any addition."""
    changes: dict[str, Difference | None]
    """By measure: of the score in percent, of others in points."""

    @property
    def addition(self) -> str:
        """What the arm adds."""
        return self.arm.removeprefix(f"{self.base} + ") if self.base else "nothing"


def compose(drawing: Drawing) -> Composed:
    """Show every addition's change of the score, and its scores, dormancy and rank."""
    rows = {algorithm: _rows(data) for algorithm, data in drawing.panels.items()}
    caption = (
        "Change of the score by each addition, in percent of the same network without it: means "
        "over games with 95 % intervals of the paired difference. An interval that contains 0 "
        "shows no difference. "
        + " ".join(
            f"{algorithm_name(name)}: {score_axis(data)}." for name, data in drawing.panels.items()
        )
    )
    draw = partial(_draw, drawing, rows)
    return Composed(draw, caption, [_table(drawing, rows)], (), [SCORE, *_HEALTH])


def base_of(label: str, labels: list[str]) -> str:
    """Return the longest label that this one adds something to; empty if there is none.

    Examples:
        >>> base_of("tanh + HR + ReDo", ["tanh + HR", "ReLU", "tanh + HR + ReDo"])
        'tanh + HR'
    """
    return max((base for base in labels if label.startswith(f"{base} + ")), key=len, default="")


def _rows(data: PanelRuns) -> list[_Row]:
    labels = data.shown_labels
    rows = []
    for label in labels:
        base = base_of(label, labels)
        changes: dict[str, Difference | None] = {}
        for measure in (SCORE, *_HEALTH):
            values = data.finals(measure)
            changes[measure] = None
            if base and values.get(label) and values.get(base):
                changes[measure] = difference(
                    values[label],
                    values[base],
                    data.aggregations(measure)[0],
                    unit="percent" if measure == SCORE else "points",
                    rng=report_generator(),
                )
        network = label
        while shorter := base_of(network, labels):
            network = shorter
        rows.append(_Row(label, base, network, changes))
    return rows


def _draw(drawing: Drawing, rows: dict[str, list[_Row]]) -> Figure:
    """Draw a panel for each algorithm, and in it a row for each addition."""
    additions = list(
        dict.fromkeys(row.addition for own in rows.values() for row in own if row.base)
    )
    networks = list(dict.fromkeys(row.network for own in rows.values() for row in own))
    footer = textwrap.wrap(drawing.footer([SCORE]), 110)
    height = 1.5 + 0.36 * len(additions) + 0.15 * len(footer)
    margins = (1.7, 0.15, 0.6 + 0.15 * len(footer), 0.55)
    figure = new_figure(3.1 * max(1, len(rows)) + 1.7, height, margins)
    panels = figure.subplots(1, max(1, len(rows)), squeeze=False, sharey=True)[0]
    for axes, (algorithm, own) in zip(panels, rows.items(), strict=False):
        _draw_panel(axes, own, additions, networks)
        axes.set_title(algorithm_name(algorithm), fontsize=10)
        axes.set_xlabel("change of the score (%)", fontsize=9)
    legend = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if legend:
        figure.legend(
            [*legend.values()],
            [*legend],
            loc="upper right",
            ncols=len(legend),
            fontsize=8,
            frameon=False,
        )
    add_footer(figure, footer)
    return figure


def _draw_panel(axes: Axes, rows: list[_Row], additions: list[str], networks: list[str]) -> None:
    """Draw the changes by each addition; markers are open where the base has another addition."""
    labeled: set[str] = set()
    for row in rows:
        change = row.changes[SCORE]
        if change is None:
            continue
        number = networks.index(row.network)
        style = variant_style(number)
        offset = 0.28 * (0.5 - number / (len(networks) - 1)) if len(networks) > 1 else 0.0
        place = len(additions) - 1 - additions.index(row.addition) + offset
        value, low, high = change.estimate
        if np.isfinite(low):
            axes.plot([low, high], [place, place], color=style.color, linewidth=2, alpha=0.5)
        axes.plot([value], [place], color=style.color, marker=style.marker, markersize=5,
                  markerfacecolor=style.color if row.base == row.network else "white",
                  linestyle="none",
                  label=None if row.base in labeled else f"against {row.base}")  # fmt: skip
        labeled.add(row.base)
    if not labeled:
        axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", color="#555555")
        axes.set_xticks([])
    axes.axvline(0, color="#555555", linewidth=1, zorder=1)
    axes.set_yticks(range(len(additions)), additions[::-1])
    axes.set_ylim(-0.6, len(additions) - 0.4)
    style_axes(axes, grid="x", ticks=8.5)


def _table(drawing: Drawing, rows: dict[str, list[_Row]]) -> Table:
    """Return every arm's score, dormancy and rank, with what its addition changes."""
    shown: dict[str, list[str]] = {}
    data: dict[str, list[object]] = {}
    for algorithm, own in rows.items():
        panel = drawing.panels[algorithm]
        for row in own:
            cells: dict[str, str] = {"algorithm": algorithm_name(algorithm), "arm": row.arm}
            numbers: dict[str, object] = {"algorithm": algorithm, "arm": row.arm, "base": row.base}
            for measure in (SCORE, *_HEALTH):
                column = "score" if measure == SCORE else measure_words(panel, measure)
                if not panel.finals(measure).get(row.arm):
                    cells[column] = "–"
                    numbers |= dict.fromkeys((measure, f"{measure}_low", f"{measure}_high"), np.nan)
                else:
                    estimate = panel.estimate(measure, row.arm, panel.aggregations(measure)[0])
                    cells[column] = estimate_words(estimate, measure)
                    numbers |= {
                        measure: estimate.value,
                        f"{measure}_low": estimate.low,
                        f"{measure}_high": estimate.high,
                    }
            change = row.changes[SCORE]
            cells["change of the score"] = "–" if change is None else change.interval
            cells["verdict"] = "" if change is None else change.outcome
            numbers |= _change_numbers("score_percent", change)
            for measure in _HEALTH:
                numbers |= _change_numbers(f"{measure}_points", row.changes[measure])
                cells[f"{MEASURES[measure].column}, verdict"] = _health_words(
                    measure, row.changes[measure]
                )
            numbers |= {"tasks": len(panel.tasks), "steps": panel.end}
            for name, text in cells.items():
                shown.setdefault(name, []).append(text)
            for name, number in numbers.items():
                data.setdefault(name, []).append(number)
    caption = (
        f"{drawing.experiment.place}: scores, dormancy and rank at the end, with 95 % intervals; "
        "verdicts: against the same network without the addition"
    )
    return Table("numbers", caption, shown, data)


def _change_numbers(name: str, change: Difference | None) -> dict[str, object]:
    value, low, high = change.estimate if change is not None else (float("nan"),) * 3
    outcome = "" if change is None else change.outcome
    return {
        f"{name}_change": value,
        f"{name}_change_low": low,
        f"{name}_change_high": high,
        f"{name}_verdict": outcome,
    }


def _health_words(measure: str, change: Difference | None) -> str:
    """Return a verdict in the measure's own words."""
    if change is None:
        return ""
    words = {"higher": MEASURES[measure].above, "lower": MEASURES[measure].below}
    return words.get(change.outcome, change.outcome)
