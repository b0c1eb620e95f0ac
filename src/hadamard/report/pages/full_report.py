"""A report as a folder: the page, and every figure and table on it as files of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import sections
from hadamard.report.data.series import FloatArray
from hadamard.report.draw import charts, figures
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.figures import VariantStyle
from hadamard.report.draw.svg import inline_figure
from hadamard.report.measures import HEALTH, MEASURES
from hadamard.report.pages import run_tables
from hadamard.report.pages.caveats import caveats
from hadamard.report.pages.document import terms_html, write_document
from hadamard.report.pages.dormancy import dormancy_table
from hadamard.report.pages.glossary import DENSITIES_TEXT, MULTI_TASK_TERMS, run_terms
from hadamard.report.pages.multi_task_section import aggregates_html, comparisons_html
from hadamard.report.pages.report_files import ReportFiles, slug
from hadamard.report.pages.run_settings import DefaultOf, settings_html
from hadamard.report.pages.section_content import (
    axis_label,
    contribution_bars,
    densities,
    findings_html,
    representation_words,
    runs_line,
    score_words,
    styles_of,
)
from hadamard.report.statistics.multi_task import combine_tasks
from hadamard.text import count_range

_OPEN_CAVEATS = 12
_OPEN_SECTIONS = 3
_OPEN_ROWS = 30


def write_report(
    folder: str | os.PathLike[str],
    runs: Sequence[RunData],
    title: str,
    default_of: DefaultOf | None = None,
    problems: Iterable[str] = (),
    *,
    normalization: str | None = None,
    curves: Sequence[ImportedCurve] = (),
) -> Path:
    """Write the report about some runs into a folder and return the path of its page.

    Args:
        folder: Where ``index.html``, ``figures/`` and ``tables/`` go.
        runs: The runs.
        title: The page's title.
        default_of: Returns default specs, see `write_comparison`.
        problems: Sentences about runs that could not be read, which the page shows.
        normalization: One of `normalize.NORMALIZATIONS`; by default the paper's for each algorithm.
        curves: Curves of other methods, drawn beside those of the runs on the same tasks.
    """
    if not runs:
        raise ValueError("nothing to report: runs is empty")
    report = _Report(Path(folder), runs, title, default_of, list(problems), normalization, curves)
    return report.write()


class _Report:
    """Writes a report; most methods return a part of the page as HTML."""

    def __init__(
        self,
        folder: Path,
        runs: Sequence[RunData],
        title: str,
        default_of: DefaultOf | None,
        problems: Sequence[str],
        normalization: str | None,
        curves: Sequence[ImportedCurve],
    ) -> None:
        self.files = ReportFiles(folder)
        self.runs = runs
        self.title = title
        self.default_of = default_of
        self.problems = problems
        self.sections = sections(runs)
        tasks = {section.env for section in self.sections}
        self.curves = [curve for curve in curves if curve.env in tasks]
        self.styles = styles_of(self.sections)
        methods = list(dict.fromkeys(curve.method for curve in self.curves))
        self.styles |= charts.styles_for(methods, len(self.styles))
        self.combined = combine_tasks(self.sections, normalization=normalization)

    def write(self) -> Path:
        """Write the page, its figures and its tables; return the path of the page."""
        parts = {
            "What the numbers say": self._findings,
            "All tasks together": self._all_tasks,
            "Learning curves": self._learning,
            "The representation": self._health,
            "Single neurons": self._densities,
            "Task by task": self._small_multiples,
            "Runs": self._runs,
            "How to read this": self._terms,
        }
        bodies = {name: body for name, part in parts.items() if (body := part())}
        page = [
            runs_line(self.runs),
            f"<p>{escape(self._summary())}</p>",
            "<nav>" + " ".join(f'<a href="#{slug(n)}">{n}</a>' for n in bodies) + "</nav>",
        ]
        for name, body in bodies.items():
            head = f'<h2 id="{slug(name)}">{name}</h2>'
            if name == "What the numbers say":
                page.append(f'<div class="verdict">{head}{body}</div>{self._caveats()}')
                page.append(charts.legend_html(self.styles, self._swatches()))
            else:
                page.append(f"<section>{head}{body}</section>")
        page.append(charts.script_html(self.files.charts))
        body = self.files.fill_in("\n".join(page))
        path = self.files.folder / "index.html"
        write_document(path, self.title, body, charts.style(), charts.POLICY)
        return path

    def _swatches(self) -> dict[str, str]:
        return {
            label: inline_figure(figures.swatch(style), label)
            for label, style in self.styles.items()
        }

    def _summary(self) -> str:
        algorithms = dict.fromkeys(algorithm_name(section.algorithm) for section in self.sections)
        envs = dict.fromkeys(section.env for section in self.sections)
        seeds = [len(variant.runs) for section in self.sections for variant in section.variants]
        budgets = dict.fromkeys(f"{run.steps:,}" for run in self.runs)
        tasks = ", ".join(envs) if len(envs) <= 6 else f"{len(envs)} tasks"
        labels = dict.fromkeys(v.label for section in self.sections for v in section.variants)
        return (
            f"{' and '.join(algorithms)} on {tasks}: {' · '.join(labels)}; "
            f"{count_range(seeds, 'seed')} of each, "
            f"{' or '.join(budgets)} steps."
        )

    def _findings(self) -> str:
        all_tasks = "".join(map(comparisons_html, self.combined.scores))
        with_names = len(self.sections) > 1
        by_task = "".join(
            findings_html(section, with_name=with_names, with_limits=False)
            for section in self.sections
        )
        if len(self.sections) > _OPEN_SECTIONS:
            by_task = f"<details><summary>Task by task</summary>{by_task}</details>"
        return all_tasks + by_task

    def _caveats(self) -> str:
        sentences = caveats(self.sections, self.problems) + self.combined.failures
        if not sentences:
            return ""
        items = [f"<li>{escape(sentence)}</li>" for sentence in sentences]
        html = f"<ul>{''.join(items[:_OPEN_CAVEATS])}</ul>"
        if further := items[_OPEN_CAVEATS:]:
            html += (
                f"<details><summary>{len(further)} more</summary>"
                f"<ul>{''.join(further)}</ul></details>"
            )
        return f'<div class="caveats"><h2 id="caveats">Caveats</h2>{html}</div>'

    def _all_tasks(self) -> str:
        with_names = len(self.combined.scores) > 1
        html = ""
        for scores in self.combined.scores:
            head = f"<h3>{escape(algorithm_name(scores.algorithm))}</h3>" if with_names else ""
            html += head + aggregates_html(scores, self.files, self.styles)
        return html

    def _learning(self) -> str:
        charts_html = "".join(self.files.chart(chart) for chart in self._score_charts().values())
        captions = list(dict.fromkeys(score_words(section) for section in self.sections))
        if len(captions) > 1:
            captions = [f"{section.name}: {score_words(section)}" for section in self.sections]
        captions.append(self._interval_words())
        table = run_tables.results_table(self.sections)
        table_html = self.files.table(table, "words tight results")
        return (
            f'<div class="charts">{charts_html}</div>'
            f'<p class="caption">{escape(" ".join(captions))}</p>'
            f"{_folded(table_html, len(table), 'Final numbers')}"
            '<p class="caption">Numbers at the end: means over the finished seeds, with 95 % '
            "intervals of the mean (Student's t).</p>"
        )

    def _interval_words(self) -> str:
        seeds = [len(variant.runs) for section in self.sections for variant in section.variants]
        if max(seeds) == 1:
            return "One seed for each variant, so there is no interval to show."
        sentences = ["Thick: mean of the seeds, where every seed has a value."]
        if min(seeds) <= charts.MAX_SEED_LINES:
            most_variants = max(len(section.variants) for section in self.sections)
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
        if self.curves:
            methods = ", ".join(dict.fromkeys(curve.method for curve in self.curves))
            sentences.append(f"Dotted: {methods}, from --curves; no other number includes them.")
        sentences.append("Drag to zoom; click on the legend to hide variants.")
        return " ".join(sentences)

    def _score_charts(self) -> dict[str, Chart]:
        score_charts = {}
        for section in self.sections:
            grid = section.grid()
            lines = [(v.label, grid, v.score_curve(grid)) for v in section.variants]
            lines += [(c.method, c.steps, c.scores) for c in self.curves if c.env == section.env]
            score_charts[section.name] = Chart(
                f"score-{slug(section.name)}", section.name, "score", self._lines(lines)
            )
        return score_charts

    def _lines(self, curves: Iterable[tuple[str, Any, FloatArray]]) -> list[charts.Line]:
        """Return lines from labels, steps and values, (seeds, steps); without a value, no line."""
        return charts.uncrowded(
            [
                charts.mean_line(label, self.styles[label], steps, values)
                for label, steps, values in curves
                if np.isfinite(values).any()
            ]
        )

    def _health(self) -> str:
        parts = []
        for measure in HEALTH:
            title, factor, charts_html = MEASURES[measure].title, MEASURES[measure].factor, ""
            for section in self.sections:
                curves = [(v.label, *v.health_curve(measure)) for v in section.variants]
                lines = self._lines(
                    (label, steps, factor * values) for label, steps, values in curves
                )
                if lines:
                    charts_html += self.files.chart(
                        Chart(f"{slug(title)}-{slug(section.name)}", section.name,
                              axis_label(section, measure), lines, from_zero=True)
                    )  # fmt: skip
            if charts_html:
                parts.append(f'<h3>{title}</h3><div class="charts">{charts_html}</div>')
        table = dormancy_table(self.sections)
        if table is not None:
            parts.append(
                "<h3>Dormant neurons, predicted and measured</h3>"
                f"{self.files.table(table, 'words tight')}"
                f'<p class="caption">{escape(table.caption)}.</p>'
            )
        bars_html = "".join(
            self.files.figure(
                partial(figures.contributions, bars), f"contributions-{slug(section.name)}",
                section.name,
            )
            for section in self.sections
            if (bars := contribution_bars(section))
        )  # fmt: skip
        if bars_html:
            head = "<h3>What the next layer receives at the end</h3>"
            parts.append(f'{head}<div class="charts">{bars_html}</div>')
        if not parts:
            return "<p>No run has a health stream, so there is nothing to show.</p>"
        measured = escape(f"Measured on {representation_words(self.runs)}.")
        return f"<p>{measured}</p>{''.join(parts)}"

    def _densities(self) -> str:
        by_algorithm: dict[str, str] = {}
        skipped = []
        for section in self.sections:
            if section.algorithm in by_algorithm:
                skipped.append(section.env)
                continue
            rows = []
            for number, variant_densities in enumerate(densities(section), start=1):
                times = ["first", "last"] if len(variant_densities) > 1 else ["last"]
                grids = (
                    self.files.figure(
                        partial(figures.kde_grid, density.grid),
                        f"kde-{slug(section.name)}-{number}-{time}",
                        density.caption,
                    )
                    for time, density in zip(times, variant_densities, strict=True)
                )
                rows.append(f'<div class="grids">{"".join(grids)}</div>')
            if rows:
                by_algorithm[section.algorithm] = f"<h3>{escape(section.name)}</h3>{''.join(rows)}"
        if not by_algorithm:
            return ""
        text = DENSITIES_TEXT.format(layer="the representation")
        if skipped:
            text += f" One task of each algorithm is shown, without {', '.join(skipped)}."
        return f"<p>{escape(text)}</p>{''.join(by_algorithm.values())}"

    def _small_multiples(self) -> str:
        by_algorithm: dict[str, dict[str, Chart]] = {}
        for section, chart in zip(self.sections, self._score_charts().values(), strict=True):
            by_algorithm.setdefault(section.algorithm, {})[section.env] = chart
        return "".join(
            self.files.figure(
                partial(
                    charts.small_multiples,
                    [replace(chart, title=env) for env, chart in by_task.items()],
                    self._legend(by_task.values()),
                ),
                f"tasks-{algorithm}",
                f"{algorithm_name(algorithm)}: scores over training on every task",
                css_class="wide",
            )
            for algorithm, by_task in by_algorithm.items()
            if len(by_task) > 1
        )  # fmt: skip

    def _legend(self, shown_charts: Iterable[Chart]) -> dict[str, VariantStyle]:
        labels = {line.label for chart in shown_charts for line in chart.lines}
        return {label: style for label, style in self.styles.items() if label in labels}

    def _runs(self) -> str:
        runs = [run for section in self.sections for run in section.runs]
        defaults: dict[tuple[str, str], Mapping[str, Any]] = {}
        if self.default_of is not None:
            for section in self.sections:
                key = section.algorithm, section.env
                defaults[key] = self.default_of(*key)
        table = self.files.table(run_tables.runs_table(runs, defaults), "words tight runs")
        table = _folded(table, len(runs), f"All {len(runs)} runs")
        by_section = "".join(
            f"<details><summary>{escape(section.name)}: settings, versions, commands that repeat "
            f"each run</summary>{settings_html(section, self.default_of)}</details>"
            for section in self.sections
        )
        return table + by_section

    def _terms(self) -> str:
        terms = run_terms(self.runs)
        return terms_html(terms | MULTI_TASK_TERMS if self.combined.scores else terms)


def _folded(table: str, rows: int, name: str) -> str:
    """Return a table; a long one is folded under its name."""
    if rows <= _OPEN_ROWS:
        return table
    return f"<details><summary>{escape(name)}</summary>{table}</details>"
