"""The parts of a full report with figures: learning curves, the representation, single neurons."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.sections import Section, Variant
from hadamard.report.data.series import FloatArray
from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.densities import kde_grid
from hadamard.report.draw.figures import MOST_ROWS, VariantStyle, first
from hadamard.report.draw.layers import contributions
from hadamard.report.draw.plain_text import escape, reason
from hadamard.report.measures import HEALTH, MEASURES
from hadamard.report.pages import run_tables
from hadamard.report.pages.dormancy import dormancy_table
from hadamard.report.pages.glossary import DENSITIES_TEXT
from hadamard.report.pages.left_out import listed
from hadamard.report.pages.report_files import ReportFiles, slug
from hadamard.report.pages.section_content import (
    axis_label,
    contribution_bars,
    densities,
    representation_words,
    score_words,
)

_MOST_CAPTIONS = 60
MOST_TASKS = 60
"""Tasks in the figure of all tasks."""
OPEN_ROWS = 30
"""Longer tables are folded."""


@dataclass(frozen=True)
class ReportContent:
    """What the parts of a report are made from, and the files they are written to."""

    sections: Sequence[Section]
    styles: Mapping[str, VariantStyle]
    """By the label of a variant or the name of another method."""
    curves: Sequence[ImportedCurve]
    """Other methods' curves on the sections' tasks."""
    files: ReportFiles

    @functools.cached_property
    def score_charts(self) -> dict[tuple[str, str], Chart]:
        """The learning curves by algorithm and environment, without those that failed."""
        score_charts = {}
        for section in self.sections:
            try:
                score_charts[section.algorithm, section.env] = self._score_chart(section)
            except Exception as error:
                part = f"The learning curve of {section.name}"
                self.files.omissions.failed(part, reason(error))
        return score_charts

    def _score_chart(self, section: Section) -> Chart:
        grid = section.grid()
        lines = [(v.label, grid, v.score_curve(grid)) for v in section.variants]
        lines += [(c.method, c.steps, c.scores) for c in self.curves if c.env == section.env]
        return Chart(f"score-{slug(section.name)}", section.name, "score", self.lines(lines))

    def lines(self, curves: Iterable[tuple[str, Any, FloatArray]]) -> list[charts.Line]:
        """Return lines from labels, steps and values, (seeds, steps); without a value, no line."""
        return charts.uncrowded(
            [
                charts.mean_line(label, self.styles[label], steps, values)
                for label, steps, values in curves
                if np.isfinite(values).any()
            ]
        )


def learning_html(content: ReportContent) -> str:
    """Return the learning curves and the final numbers."""
    charts_html = "".join(content.files.chart(chart) for chart in content.score_charts.values())
    captions = list(dict.fromkeys(score_words(section) for section in content.sections))
    if len(captions) > 1:
        captions = [f"{section.name}: {score_words(section)}" for section in content.sections]
    captions = captions[:_MOST_CAPTIONS]
    captions.append(_interval_words(content))
    table = run_tables.results_table(content.sections)
    table_html = content.files.table(table, "words tight results")
    return (
        f'<div class="charts">{charts_html}</div>'
        f'<p class="caption">{escape(" ".join(captions))}</p>'
        f"{folded(table_html, len(table), 'Final numbers')}"
        '<p class="caption">Numbers at the end: means over the finished seeds, with 95 % '
        "intervals of the mean (Student's t).</p>"
    )


def _interval_words(content: ReportContent) -> str:
    seeds = [len(variant.runs) for section in content.sections for variant in section.variants]
    if max(seeds) == 1:
        return "One seed for each variant, so there is no interval to show."
    sentences = ["Thick: mean of the seeds, where every seed has a value."]
    if min(seeds) <= charts.MAX_SEED_LINES:
        most_variants = max(len(section.variants) for section in content.sections)
        sentences.append(
            f"Thin: each seed, in charts of at most {charts.MAX_VARIANTS_WITH_SEEDS} variants."
            if most_variants > charts.MAX_VARIANTS_WITH_SEEDS
            else "Thin: each seed."
        )
    if max(seeds) >= charts.MIN_BAND_SEEDS:
        sentences.append(
            "Shaded: 95 % interval of the mean (Student's t), which with few seeds may reach "
            "beyond the chart."
        )
    if min(seeds) < charts.MIN_BAND_SEEDS:
        sentences.append(f"With fewer than {charts.MIN_BAND_SEEDS} seeds no interval is drawn.")
    if content.curves:
        methods = listed(dict.fromkeys(curve.method for curve in content.curves))
        sentences.append(f"Dotted: {methods}, from --curves; no other number includes them.")
    if max(len(section.variants) for section in content.sections) > MOST_ROWS:
        sentences.append(f"A chart has the first {MOST_ROWS} variants of its task.")
    sentences.append("Drag to zoom; click on the legend to hide variants.")
    return " ".join(sentences)


def health_html(content: ReportContent) -> str:
    """Return the health of the representation: over training, at the end, and as predicted."""
    omissions = content.files.omissions
    parts = []
    for measure in HEALTH:
        title = MEASURES[measure].title
        charts_html = "".join(
            omissions.attempt(
                f"The chart of {title.lower()} of {section.name}",
                partial(_health_chart, content, section, measure),
            )
            for section in content.sections
        )
        if charts_html:
            parts.append(f'<h3>{title}</h3><div class="charts">{charts_html}</div>')
    parts.append(omissions.attempt("The table of dormant neurons", partial(_dormancy, content)))
    parts.append(omissions.attempt("The table of further measures", partial(_further, content)))
    bars_html = "".join(
        omissions.attempt(
            f"The figure of what the next layer receives of {section.name}",
            partial(_contribution_bars, content, section),
        )
        for section in content.sections
    )
    if bars_html:
        head = "<h3>What the next layer receives at the end</h3>"
        parts.append(f'{head}<div class="charts">{bars_html}</div>')
    if not any(parts):
        return "<p>No run has a health stream, so there is nothing to show.</p>"
    runs = [run for section in content.sections for run in section.runs]
    return f"<p>{escape(f'Measured on {representation_words(runs)}.')}</p>{''.join(parts)}"


def _health_chart(content: ReportContent, section: Section, measure: str) -> str:
    """Return the chart of a measure; nothing if no run has it."""
    curves = [(v.label, *v.health_curve(measure)) for v in section.variants]
    factor, title = MEASURES[measure].factor, MEASURES[measure].title
    lines = content.lines((label, steps, factor * values) for label, steps, values in curves)
    if not lines:
        return ""
    name, axis = f"{slug(title)}-{slug(section.name)}", axis_label(section, measure)
    return content.files.chart(Chart(name, section.name, axis, lines, from_zero=True))


def _dormancy(content: ReportContent) -> str:
    table = dormancy_table(content.sections)
    if table is None:
        return ""
    return (
        "<h3>Dormant neurons, predicted and measured</h3>"
        f"{content.files.table(table, 'words tight')}"
        f'<p class="caption">{escape(table.caption)}.</p>'
    )


def _further(content: ReportContent) -> str:
    table = run_tables.further_table(content.sections)
    if table is None:
        return ""
    table_html = content.files.table(table, "words tight results")
    return (
        f"<h3>Further measures</h3>{folded(table_html, len(table), 'Further measures at the end')}"
        f'<p class="caption">{escape(table.caption)}.</p>'
    )


def _contribution_bars(content: ReportContent, section: Section) -> str:
    bars = contribution_bars(section)
    if not bars:
        return ""
    name = f"contributions-{slug(section.name)}"
    return content.files.figure(partial(contributions, bars), name, section.name)


def densities_html(content: ReportContent) -> str:
    """Return the densities of single neurons on one task of each algorithm."""
    by_algorithm: dict[str, str] = {}
    skipped = []
    for section in content.sections:
        if section.algorithm in by_algorithm:
            skipped.append(section.env)
            continue
        rows = _density_rows(content, section)
        if rows:
            by_algorithm[section.algorithm] = f"<h3>{escape(section.name)}</h3>{rows}"
    if not by_algorithm:
        return ""
    text = DENSITIES_TEXT.format(layer="the representation")
    if skipped:
        text += f" One task of each algorithm is shown, without {listed(skipped, 60)}."
    return f"<p>{escape(text)}</p>{''.join(by_algorithm.values())}"


def _density_rows(content: ReportContent, section: Section) -> str:
    """Return a row of densities for each variant that has any, of the first `MOST_ROWS`."""
    variants, cut = first(section.variants, MOST_ROWS)
    omissions = content.files.omissions
    rows = ""
    for number, variant in enumerate(variants, start=1):
        rows += omissions.attempt(
            f"The densities of {variant.label} in {section.name}",
            partial(_density_row, content, section, variant, f"kde-{slug(section.name)}-{number}"),
        )
    if cut and rows:
        rows += omissions.note(f"{section.name}: densities are of the {cut} variants.")
    return rows


def _density_row(content: ReportContent, section: Section, variant: Variant, name: str) -> str:
    grids = densities(section, variant)
    times = ["first", "last"] if len(grids) > 1 else ["last"]
    figures_html = "".join(
        content.files.figure(partial(kde_grid, density.grid), f"{name}-{time}", density.caption)
        for time, density in zip(times, grids, strict=False)
    )
    return f'<div class="grids">{figures_html}</div>' if figures_html else ""


def small_multiples_html(content: ReportContent) -> str:
    """Return one figure of all learning curves of each algorithm that has several tasks."""
    by_algorithm: dict[str, dict[str, Chart]] = {}
    for (algorithm, env), chart in content.score_charts.items():
        by_algorithm.setdefault(algorithm, {})[env] = chart
    html = ""
    for algorithm, by_task in by_algorithm.items():
        if len(by_task) == 1:
            continue
        tasks, cut = first(list(by_task), MOST_TASKS)
        shown = [replace(by_task[task], title=task) for task in tasks]
        html += content.files.figure(
            partial(charts.small_multiples, shown, _legend(content, shown)),
            f"tasks-{slug(algorithm)}",
            f"{algorithm_name(algorithm)}: scores over training on "
            + (f"the {cut} tasks" if cut else "every task"),
            css_class="wide",
        )
    return html


def _legend(content: ReportContent, shown: Iterable[Chart]) -> dict[str, VariantStyle]:
    labels = {line.label for chart in shown for line in chart.lines}
    styles = {label: style for label, style in content.styles.items() if label in labels}
    return dict(islice(styles.items(), MOST_ROWS))


def folded(table: str, rows: int, name: str) -> str:
    """Return a table; a long one is folded under its name."""
    if rows <= OPEN_ROWS:
        return table
    return f"<details><summary>{escape(name)}</summary>{table}</details>"
