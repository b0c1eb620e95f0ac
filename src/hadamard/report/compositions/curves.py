"""Measures over training, all tasks together: Figures 2, 7, 8, 11, 12 and 13."""

from __future__ import annotations

from functools import partial

from hadamard.report.compositions import (
    Composed,
    Drawing,
    axis_words,
    factor,
    line,
    numbers_table,
    score_axis,
    shaded_words,
    title_words,
)
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.estimates import Band
from hadamard.report.statistics.run_values import SCORE

_CELL = (3.1, 2.5)


def compose(drawing: Drawing) -> Composed:
    """Draw each plot as a chart of aggregated curves."""
    styles = drawing.styles
    figure_charts, measures = [], {algorithm: list[str]() for algorithm in drawing.panels}
    for number, plot in enumerate(drawing.experiment.plots):
        data = drawing.panels[plot.algorithm]
        if plot.measure not in measures[plot.algorithm]:
            measures[plot.algorithm].append(plot.measure)
        labels = [arm.label for arm in plot.arms] or data.shown_labels
        steps, bands = data.band(plot.measure, labels, drawing.shading)
        scale = factor(plot.measure)
        title = plot.title or title_words(plot.measure)
        if drawing.has_several_algorithms and not plot.title:
            title = f"{algorithm_name(plot.algorithm)}: {title.lower()}"
        if data.end < data.panel.steps:
            title += f"\n{data.budget_words}"
        figure_charts.append(
            Chart(
                f"plot-{number}",
                title,
                axis_words(data, plot.measure),
                [
                    line(label, styles[label], steps, Band(*(scale * part for part in band)))
                    for label, band in bands.items()
                ],
                from_zero=plot.measure != SCORE,
            )
        )
    all_measures = list(dict.fromkeys(m for shown in measures.values() for m in shown))
    starts = [
        drawing.panels[algorithm].late_start()
        for algorithm, shown in measures.items()
        if SCORE in shown
    ]
    footer = " ".join(filter(None, [drawing.footer(all_measures), *starts, shaded_words(drawing)]))
    columns = drawing.experiment.columns
    return Composed(
        partial(charts.small_multiples, figure_charts, styles, columns, _CELL, footer),
        _caption(drawing),
        [numbers_table(drawing, measures)],
        figure_charts,
        all_measures,
    )


def _caption(drawing: Drawing) -> str:
    sentences = []
    for plot in drawing.experiment.plots:
        data = drawing.panels[plot.algorithm]
        name = plot.title or title_words(plot.measure)
        if plot.measure == SCORE:
            description = AGGREGATES[data.panel.aggregations[0]].description
            sentences.append(f"{name}: {score_axis(data)} ({description}).")
        else:
            aggregate = AGGREGATES[data.panel.health_aggregations[0]].label
            sentences.append(f"{name}: {aggregate} over tasks, of the representation.")
    return " ".join([*dict.fromkeys(sentences), shaded_words(drawing)]).rstrip()
