"""The paper's own compositions: one file is one way to draw an experiment, found by its name.

A composition has ``compose(drawing) -> Composed``. This module holds what all of them share: their
input, their output, and the texts of captions, axes and footers.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw.charts import Chart, Line
from hadamard.report.draw.figures import VariantStyle, variant_style
from hadamard.report.measures import MEASURES
from hadamard.report.pages.tables import Table, estimate_text
from hadamard.report.statistics import normalize
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.estimates import Band, Estimate
from hadamard.report.statistics.panel import PanelRuns
from hadamard.report.statistics.run_values import SCORE
from hadamard.text import count_range, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hadamard.experiments.paper import Experiment, Shading

SHADED = {
    "interval": "95 % interval",
    "deviation": "standard deviation over seeds",
    "error": "standard error of the mean over seeds",
}


@dataclass(frozen=True, eq=False)
class Drawing:
    """An experiment and the runs it is drawn from."""

    experiment: Experiment
    panels: Mapping[str, PanelRuns]
    """By algorithm."""
    shading: Shading
    curves: Sequence[ImportedCurve] = ()
    """Published curves of the methods the experiment names."""

    @property
    def styles(self) -> dict[str, VariantStyle]:
        """The style of every arm that is shown."""
        arms = [
            arm
            for data in self.panels.values()
            for arm in data.panel.arms
            if arm.label in data.shown_labels
        ]
        return {arm.label: variant_style(arm.style) for arm in arms}

    @property
    def has_several_algorithms(self) -> bool:
        """Whether more than one algorithm is shown."""
        return len(self.panels) > 1

    def footer(self, measures: Sequence[str]) -> str:
        """Return the sentences under a figure: budget, tasks, seeds, and what is missing."""
        sentences = []
        for algorithm, data in self.panels.items():
            if not data.tasks:
                sentences.append(f"{algorithm_name(algorithm)}: no runs.")
                continue
            seeds = count_range(data.seeds(), "seed")
            sentences.append(
                f"{algorithm_name(algorithm)}: {counted(len(data.tasks), 'task')}, {seeds}, "
                f"{data.budget_words}."
            )
            sentences += data.caveats(measures)
        return " ".join(sentences)


@dataclass(frozen=True, eq=False)
class Composed:
    """A figure, not drawn yet, with its caption, tables and curves."""

    draw: Callable[[], Figure]
    caption: str
    """Computed from what is shown."""
    tables: Sequence[Table] = ()
    """The first is the experiment's own table."""
    charts: Sequence[Chart] = ()
    """The curves of the figure, if it has any."""
    measures: Sequence[str] = (SCORE,)
    """The measures that are shown."""

    def curves_csv(self) -> str:
        """Return the numbers behind the curves: value, and the bounds of what is shaded."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(("chart", "axis", "arm", "step", "value", "low", "high"))
        for chart in self.charts:
            title = chart.title.replace("\n", ", ")
            for line in chart.lines:
                for step, *band in zip(line.steps, *line.band, strict=True):
                    values = ["" if np.isnan(value) else repr(float(value)) for value in band]
                    writer.writerow((title, chart.ylabel, line.label, f"{step:.10g}", *values))
        return buffer.getvalue()


class Composition(Protocol):
    """A module of this package."""

    def compose(self, drawing: Drawing) -> Composed:
        """Make the figure and the tables of an experiment."""


def compose(drawing: Drawing) -> Composed:
    """Make an experiment's figure and tables by the composition it names."""
    name = f"{__name__}.{drawing.experiment.composition}"
    module: Composition = importlib.import_module(name)
    return module.compose(drawing)


def line(label: str, style: VariantStyle, steps: Any, band: Band) -> Line:
    """Return a curve for a chart, up to its last value."""
    values = np.flatnonzero(np.isfinite(band.value))
    end = values[-1] + 1 if values.size else 0
    return Line(label, style, steps[:end], Band(*(part[:end] for part in band)))


def score_axis(data: PanelRuns) -> str:
    """Return the label of a score's axis: how it is aggregated and normalized."""
    aggregate = AGGREGATES[data.panel.aggregations[0]].label
    return f"{aggregate}, {score_words(data)}"


def score_words(data: PanelRuns) -> str:
    """Return the name of a panel's scores: how they are normalized."""
    return normalize.NORMALIZATIONS[data.panel.normalization].partition(" (")[0]


def axis_words(data: PanelRuns, measure: str) -> str:
    """Return the label of an axis that shows a measure of all tasks."""
    return "\n".join(score_axis(data).split(", ")) if measure == SCORE else MEASURES[measure].unit


def factor(measure: str) -> float:
    """Return the factor by which a measure is drawn: shares are in percent."""
    return 1.0 if measure == SCORE else MEASURES[measure].factor


def numbers_table(drawing: Drawing, measures: Mapping[str, Sequence[str]]) -> Table:
    """Return every arm's aggregates at the end; ``measures`` are those of each algorithm."""
    shown: dict[str, list[str]] = {}
    data: dict[str, list[Any]] = {}
    for algorithm, names in measures.items():
        panel = drawing.panels[algorithm]
        for label in panel.shown_labels:
            for measure in names:
                for aggregation in panel.aggregations(measure):
                    estimate = panel.estimate(measure, label, aggregation)
                    fewest_seeds, most_seeds = panel.seeds()
                    tasks = len(panel.tasks_with(measure))
                    row = {
                        "algorithm": algorithm,
                        "arm": label,
                        "measure": measure,
                        "aggregation": aggregation,
                        "value": estimate.value,
                        "low": estimate.low,
                        "high": estimate.high,
                        "normalization": panel.panel.normalization if measure == SCORE else "",
                        "tasks": tasks,
                        "fewest_seeds": fewest_seeds,
                        "most_seeds": most_seeds,
                        "steps": panel.end,
                        "budget": panel.panel.steps,
                    }
                    for name, value in row.items():
                        data.setdefault(name, []).append(value)
                    words = {
                        "algorithm": algorithm_name(algorithm),
                        "arm": label,
                        "measure": measure_words(panel, measure),
                        "over tasks": AGGREGATES[aggregation].label,
                        "ours": estimate_words(estimate, measure),
                    }
                    for name, text in words.items():
                        shown.setdefault(name, []).append(text)
    if not drawing.has_several_algorithms:
        shown.pop("algorithm", None)
    caption = f"{drawing.experiment.place}: numbers at the end, with 95 % intervals over seeds"
    return Table("numbers", caption, shown, data)


def shaded_words(drawing: Drawing) -> str:
    """Return the sentence on what is shaded; nothing is where every arm has one seed."""
    most = max((data.seeds()[1] for data in drawing.panels.values()), default=0)
    return f"Shaded: {SHADED[drawing.shading]}." if most > 1 else ""


def title_words(measure: str) -> str:
    """Return the title of a chart of a measure."""
    return "Score" if measure == SCORE else MEASURES[measure].title


def measure_words(data: PanelRuns, measure: str) -> str:
    """Return the name of a measure in a table."""
    if measure == SCORE:
        return score_words(data)
    return MEASURES[measure].name


def estimate_words(estimate: Estimate, measure: str) -> str:
    """Return an estimate of a measure with its interval."""
    return estimate_text(estimate, MEASURES[measure].text, no_interval=" (no interval)")
