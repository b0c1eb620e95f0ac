"""Dormant neurons without and with HR, predicted and measured: Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hadamard.report.compositions import Composed, Drawing
from hadamard.report.draw.aggregates import Mark, beside_paper
from hadamard.report.measures import percent
from hadamard.report.pages.tables import Table
from hadamard.report.statistics.difference import Difference, difference
from hadamard.report.statistics.dormancy import Activation, Dormancy, mean_dormancy
from hadamard.report.statistics.estimates import Estimate, report_generator
from hadamard.report.statistics.panel import PanelRuns
from hadamard.theory import predicted_dormant

_MEASURE = "dormant_fraction"
_ROWS: tuple[tuple[str, Activation, str, str, str], ...] = (
    ("tanh", "tanh", "tanh", "tanh + HR", "p^2"),
    ("ReLU", "relu", "ReLU", "ReLU + HR", "2p - p^2"),
)


@dataclass(frozen=True)
class _Row:
    name: str
    rule: str
    mean: Dormancy
    """The mean over tasks."""
    change: Difference
    tasks: int


def compose(drawing: Drawing) -> Composed:
    """Show the theory's prediction beside what was measured, in the paper's rows."""
    ((_, data),) = drawing.panels.items()
    rows = _rows(data)
    stated = {
        stated.arm.label: stated.value
        for stated in drawing.experiment.stated
        if stated.measure == _MEASURE
    }
    marks = [
        Mark(label, 100 * share.value, 100 * share.low, 100 * share.high, 100 * stated[label])
        for row, (_, _, plain, hr, _) in _present(rows)
        for label, share in ((plain, row.mean.without), (hr, row.mean.measured))
    ]
    caption = (
        "Fraction of dormant neurons of the last hidden layer at the end, mean of tasks: without "
        "HR (p), with HR, what the theory predicts of it task by task, and the changes: predicted "
        "in points, measured in percent of that without HR, as in the paper."
    )
    draw = partial(beside_paper, {"dormant neurons (%)": marks}, drawing.footer([_MEASURE]))
    return Composed(
        draw, caption, [_table(drawing, rows), _task_table(drawing, data)], (), [_MEASURE]
    )


def _present(rows: Sequence[_Row]) -> list[tuple[_Row, tuple[str, Activation, str, str, str]]]:
    known = {row[0]: row for row in _ROWS}
    return [(row, known[row.name]) for row in rows]


def _rows(data: PanelRuns) -> list[_Row]:
    finals = data.finals(_MEASURE)
    rows = []
    for name, activation, plain, hr, rule in _ROWS:
        without, with_hr = finals.get(plain), finals.get(hr)
        if not without or not with_hr:
            continue
        mean = mean_dormancy(without, with_hr, activation)
        change = difference(with_hr, without, "mean", unit="percent", rng=report_generator())
        rows.append(_Row(name, rule, mean, change, len(without)))
    return rows


def _table(drawing: Drawing, rows: Sequence[_Row]) -> Table:
    paper = {
        (stated.arm.label, stated.measure): stated.value for stated in drawing.experiment.stated
    }
    shown: dict[str, list[str]] = {
        "activation": [row.name for row in rows],
        "without HR (p)": [_fraction(row.mean.without) for row in rows],
        "with HR": [_fraction(row.mean.measured) for row in rows],
        "predicted with HR": [f"{row.mean.predicted:.2f} ({row.rule})" for row in rows],
        "change, predicted": [
            f"{row.mean.predicted - row.mean.without.value:+.2f}" for row in rows
        ],
        "change, measured": [_percent(row.change.estimate) for row in rows],
        "paper: without, with, change": [
            f"{paper[plain, _MEASURE]:.2f}, {paper[hr, _MEASURE]:.2f}, "
            f"{paper[hr, 'dormancy_change']:+.0f} %"
            for _, (_, _, plain, hr, _) in _present(rows)
        ],
    }
    data: dict[str, list[object]] = {
        "activation": [row.name for row in rows],
        "without": [row.mean.without.value for row in rows],
        "without_low": [row.mean.without.low for row in rows],
        "without_high": [row.mean.without.high for row in rows],
        "with": [row.mean.measured.value for row in rows],
        "with_low": [row.mean.measured.low for row in rows],
        "with_high": [row.mean.measured.high for row in rows],
        "predicted": [row.mean.predicted for row in rows],
        "predicted_change_points": [row.mean.predicted - row.mean.without.value for row in rows],
        "measured_change_percent": [row.change.estimate.value for row in rows],
        "measured_change_low": [row.change.estimate.low for row in rows],
        "measured_change_high": [row.change.estimate.high for row in rows],
        "tasks": [row.tasks for row in rows],
    }
    caption = f"{drawing.experiment.place}: dormant neurons, predicted and measured"
    return Table("numbers", caption, shown, data)


def _task_table(drawing: Drawing, data: PanelRuns) -> Table:
    """Return the same numbers for each task, as means over seeds."""
    finals = data.finals(_MEASURE)
    columns: dict[str, list[object]] = {
        name: [] for name in ("task", "activation", "without", "predicted", "with")
    }
    for name, activation, plain, hr, _ in _ROWS:
        for task, without in finals.get(plain, {}).items():
            with_hr = finals.get(hr, {}).get(task)
            if with_hr is None:
                continue
            p = float(without.mean())
            row = (task, name, p, predicted_dormant(p, activation), float(with_hr.mean()))
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    shown = {
        name: [percent(value) if isinstance(value, float) else str(value) for value in column]
        for name, column in columns.items()
    }
    return Table("tasks", f"{drawing.experiment.place}, task by task", shown, columns)


def _fraction(estimate: Estimate) -> str:
    if not estimate.has_interval:
        return f"{estimate.value:.2f} (no interval)"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _percent(estimate: Estimate) -> str:
    if not np.isfinite(estimate.value):
        return "–"
    interval = f" ({estimate.low:+.0f} to {estimate.high:+.0f})" if estimate.has_interval else ""
    return f"{estimate.value:+.0f} %{interval}"
