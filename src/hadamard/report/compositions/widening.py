"""HR against widening to the same parameter count, and against two HR layers: Table 2."""

from __future__ import annotations

from functools import partial

import numpy as np

from hadamard.report.compositions import Composed, Drawing, score_axis
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw.aggregates import Mark, beside_paper
from hadamard.report.pages.tables import Table
from hadamard.report.statistics.difference import difference
from hadamard.report.statistics.estimates import Estimate, report_generator
from hadamard.report.statistics.panel import PanelRuns
from hadamard.report.statistics.run_values import SCORE

_ROWS = ("Baseline", "+ HR", "+ Widen", "+ 2HR")
# The column that the paper gives relative to its baseline.
_RELATIVE = ("mrq",)


class _Cell:
    """One arm's number in the paper's unit, and its change against the baseline."""

    def __init__(self, data: PanelRuns, label: str, *, relative: bool) -> None:
        scores = data.finals(SCORE)
        aggregation = data.panel.aggregations[0]
        baseline = data.panel.baseline.label
        self.change: Estimate | None = None
        arm_scores, baseline_scores = scores.get(label), scores.get(baseline)
        if arm_scores and baseline_scores and label != baseline:
            self.change = difference(
                arm_scores, baseline_scores, aggregation, unit="percent", rng=report_generator()
            ).estimate
        self.value = data.estimate(SCORE, label, aggregation) if arm_scores else None
        if relative and self.value is not None:
            percent = self.change or Estimate(0.0, np.nan, np.nan)
            ratio = Estimate(*(1 + bound / 100 for bound in percent))
            self.value = ratio if baseline_scores else None

    def words(self) -> str:
        if self.value is None:
            return "–"
        interval = (
            f" ({self.value.low:.2f} to {self.value.high:.2f})" if self.value.has_interval else ""
        )
        if self.change is None:
            return f"{self.value.value:.2f}{interval}"
        return f"{self.value.value:.2f}{interval}, {self.change.value:+.0f} %"


def compose(drawing: Drawing) -> Composed:
    """Compute the paper's rows and columns, each column in the paper's unit."""
    cells: dict[str, dict[str, _Cell]] = {}
    marks: dict[str, list[Mark]] = {}
    for algorithm, data in drawing.panels.items():
        relative = algorithm in _RELATIVE
        cells[algorithm] = {
            row: _Cell(data, arm.label, relative=relative)
            for row, arm in zip(_ROWS, data.panel.arms, strict=False)
        }
        unit = "relative to the baseline" if relative else score_axis(data)
        paper = {
            stated.arm.label: stated.value
            for stated in drawing.experiment.stated
            if stated.algorithm == algorithm and stated.measure in ("score", "relative")
        }
        if relative:
            paper[data.panel.baseline.label] = 1.0
        marks[f"{algorithm_name(algorithm)}\n{unit}"] = [
            Mark(row, *(cell.value or (np.nan,) * 3), paper.get(arm.label))
            for (row, cell), arm in zip(cells[algorithm].items(), data.panel.arms, strict=False)
        ]
    caption = (
        "Scores of HR, of widening to as many parameters and of two HR layers. DQN and SimbaV2 in "
        "absolute units, MR.Q relative to its baseline; changes in percent of the baseline."
    )
    draw = partial(beside_paper, marks, drawing.footer([SCORE]))
    return Composed(draw, caption, [_table(drawing, cells)])


def _table(drawing: Drawing, cells: dict[str, dict[str, _Cell]]) -> Table:
    shown: dict[str, list[str]] = {"variant": list(_ROWS)}
    data: dict[str, list[object]] = {
        name: []
        for name in (
            "algorithm", "arm", "row", "unit", "value", "low", "high", "change_percent",
            "change_low", "change_high", "tasks", "steps",
        )
    }  # fmt: skip
    for algorithm, column in cells.items():
        panel = drawing.panels[algorithm]
        shown[algorithm_name(algorithm)] = [
            column[row].words() if row in column else "–" for row in _ROWS
        ]
        for (row, cell), arm in zip(column.items(), panel.panel.arms, strict=False):
            if cell.value is None:
                continue
            unit = "relative to the baseline" if algorithm in _RELATIVE else score_axis(panel)
            change = cell.change or (np.nan,) * 3
            facts = (len(panel.tasks), panel.end)
            line = (algorithm, arm.label, row, unit, *cell.value, *change, *facts)
            for name, value in zip(data, line, strict=True):
                data[name].append(value)
    caption = f"{drawing.experiment.place}: HR against widening, with 95 % intervals"
    return Table("numbers", caption, shown, data)
