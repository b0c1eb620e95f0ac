"""Measures over training, all tasks together: Figures 2, 7, 8, 11, 12 and 13."""

from __future__ import annotations

from functools import partial

from hadamard.report.compositions import (
    SHADED,
    Composed,
    Drawing,
    axis,
    factor,
    line,
    numbers_table,
    score_axis,
    title,
)
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.estimates import Band
from hadamard.report.statistics.panel import SCORE

_CELL = (3.1, 2.5)


def compose(drawing: Drawing) -> Composed:
    """Draw each plot as a chart of aggregated curves."""
    styles = drawing.styles
    shown, measures = [], {algorithm: list[str]() for algorithm in drawing.panels}
    for number, plot in enumerate(drawing.experiment.plots):
        data = drawing.panels[plot.algorithm]
        if plot.measure not in measures[plot.algorithm]:
            measures[plot.algorithm].append(plot.measure)
        labels = [arm.label for arm in plot.arms] or data.shown_labels
        steps, bands = data.band(plot.measure, labels, drawing.shading)
        times = factor(plot.measure)
        head = plot.title or title(plot.measure)
        if drawing.several() and not plot.title:
            head = f"{algorithm_name(plot.algorithm)}: {head.lower()}"
        if data.end < data.panel.steps:
            head += f"\n{data.budget_words}"
        shown.append(
            Chart(
                f"plot-{number}",
                head,
                axis(data, plot.measure),
                [
                    line(label, styles[label], steps, Band(*(times * part for part in band)))
                    for label, band in bands.items()
                ],
                from_zero=plot.measure != SCORE,
            )
        )
    every = dict.fromkeys(name for names in measures.values() for name in names)
    footer = f"{drawing.footer(list(every))} Shaded: {SHADED[drawing.shading]}."
    draw = partial(charts.small_multiples, shown, styles, drawing.experiment.columns, _CELL, footer)
    return Composed(draw, _caption(drawing), [numbers_table(drawing, measures)], shown, list(every))


def _caption(drawing: Drawing) -> str:
    told = []
    for plot in drawing.experiment.plots:
        data = drawing.panels[plot.algorithm]
        name = plot.title or title(plot.measure)
        if plot.measure == SCORE:
            reading = AGGREGATES[data.panel.aggregations[0]].description
            told.append(f"{name}: {score_axis(data)} ({reading}).")
        else:
            aggregate = AGGREGATES[data.panel.health_aggregations[0]].label
            told.append(f"{name}: {aggregate} over tasks, of the representation.")
    return " ".join(dict.fromkeys(told)) + f" Shaded: {SHADED[drawing.shading]}."
