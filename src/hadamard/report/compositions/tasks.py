"""Learning curves task by task: Figures 9 and 14 to 18."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hadamard.report.compositions import Composed, Drawing, estimate_words, line, shaded_words
from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.figures import VariantStyle
from hadamard.report.pages.tables import Table
from hadamard.report.statistics.estimates import Estimate, mean_curve
from hadamard.report.statistics.panel import PanelRuns
from hadamard.report.statistics.run_values import SCORE, value_at
from hadamard.report.statistics.shading import seed_band


def compose(drawing: Drawing) -> Composed:
    """Draw a small chart for each task, with each arm's mean over seeds."""
    ((algorithm, data),) = drawing.panels.items()
    tasks = [
        task
        for task in data.panel.tasks
        if any(task in data.complete.get(label, {}) for label in data.shown_labels)
    ]
    methods = list(dict.fromkeys(curve.method for curve in drawing.curves))
    styles = drawing.styles | charts.styles_for(methods, len(drawing.styles))
    task_charts = [
        Chart(f"task-{task}", task.partition("/")[2], "score", _lines(drawing, data, task, styles))
        for task in tasks
    ]
    footer = f"{drawing.footer([])} {shaded_words(drawing)}".rstrip()
    columns = drawing.experiment.columns
    cell = (2.6, 2.05) if columns <= 4 else (1.75, 1.5)
    draw = partial(charts.small_multiples, task_charts, styles, columns, cell, footer)
    caption = (
        f"{algorithm_name(algorithm)}, score per episode on each task: mean over seeds. "
        f"{shaded_words(drawing)}"
    ).rstrip()
    if methods:
        caption += f" Dotted: {', '.join(methods)}, published curves, in no other number."
    elif drawing.experiment.imported:
        caption += f" Without {' and '.join(drawing.experiment.imported)}: no curves supplied."
    return Composed(draw, caption, [_table(drawing, data, tasks)], task_charts)


def _lines(
    drawing: Drawing, data: PanelRuns, task: str, styles: Mapping[str, VariantStyle]
) -> list[charts.Line]:
    lines = []
    for label in data.shown_labels:
        runs = data.complete[label].get(task, [])
        if not runs:
            continue
        series = [run.score_series() for run in runs]
        steps = np.unique(np.concatenate([scores.steps for scores in series]))
        steps = steps[steps <= data.end].astype(np.float64)
        values = np.array([scores.latest(steps) for scores in series])
        lines.append(line(label, styles[label], steps, seed_band(values, drawing.shading)))
    return lines + [
        _imported(curve, styles, drawing.shading) for curve in drawing.curves if curve.env == task
    ]


def _imported(
    curve: ImportedCurve, styles: Mapping[str, VariantStyle], shading: str
) -> charts.Line:
    return line(curve.method, styles[curve.method], curve.steps, seed_band(curve.scores, shading))


def _table(drawing: Drawing, data: PanelRuns, tasks: list[str]) -> Table:
    """Return the final scores, unnormalized, of every arm on every task."""
    shown: dict[str, list[str]] = {"task": [task.partition("/")[2] for task in tasks]}
    columns: dict[str, list[Any]] = {
        name: [] for name in ("task", "arm", "seeds", "score", "low", "high", "deviation", "error")
    }
    for label in data.shown_labels:
        shown[label] = []
        for task in tasks:
            runs = data.complete[label].get(task, [])
            scores = np.array([value_at(run, SCORE, data.end) for run in runs])
            scores = scores[np.isfinite(scores)]
            if not scores.size:
                shown[label].append("–")
                continue
            mean = Estimate(*(float(part[0]) for part in mean_curve(scores[:, None])))
            shown[label].append(estimate_words(mean, SCORE))
            deviation = float(scores.std(ddof=1)) if scores.size > 1 else float("nan")
            row = (task, label, scores.size, *mean, deviation, deviation / np.sqrt(scores.size))
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    caption = f"{drawing.experiment.place}: final scores, means with 95 % intervals (Student's t)"
    return Table("numbers", caption, shown, columns)
