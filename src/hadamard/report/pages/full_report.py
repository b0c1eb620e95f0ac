"""A report as a folder: the page, and every figure and table on it as files of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, sections
from hadamard.report.draw import charts
from hadamard.report.draw.figures import MOST_ROWS
from hadamard.report.draw.plain_text import escape, reason
from hadamard.report.pages import run_tables
from hadamard.report.pages.caveats import caveats
from hadamard.report.pages.document import terms_html, write_document
from hadamard.report.pages.glossary import MULTI_TASK_TERMS, run_terms
from hadamard.report.pages.multi_task_section import aggregates_html, comparisons_html
from hadamard.report.pages.plain_runs import plain_curves, plain_runs, plain_sentences
from hadamard.report.pages.report_figures import (
    ReportContent,
    densities_html,
    folded,
    health_html,
    learning_html,
    small_multiples_html,
)
from hadamard.report.pages.report_files import ReportFiles, slug
from hadamard.report.pages.run_settings import DefaultOf, default_settings, settings_html
from hadamard.report.pages.section_content import findings_html, runs_line, styles_of, swatches
from hadamard.report.statistics.multi_task import CombinedTasks, combine_tasks
from hadamard.text import count_range

_OPEN_CAVEATS = 12
_OPEN_SECTIONS = 3


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
    report = _Report(folder, runs, title, default_of, problems, normalization, curves)
    return report.write()


class _Report:
    """Writes a report; most methods return a part of the page as HTML."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        runs: Sequence[RunData],
        title: str,
        default_of: DefaultOf | None,
        problems: Iterable[str],
        normalization: str | None,
        curves: Sequence[ImportedCurve],
    ) -> None:
        self.files = ReportFiles(folder)
        self.omissions = self.files.omissions
        self.runs = plain_runs(runs)
        self.title = title
        self.default_of = default_of
        self.problems = plain_sentences(list(problems))
        self.sections = sections(self.runs)
        tasks = {section.env for section in self.sections}
        curves = [curve for curve in plain_curves(curves) if curve.env in tasks]
        self.styles = styles_of(self.sections)
        methods = list(dict.fromkeys(curve.method for curve in curves))
        self.styles |= charts.styles_for(methods, len(self.styles))
        self.content = ReportContent(self.sections, self.styles, curves, self.files)
        try:
            self.combined = combine_tasks(self.sections, normalization=normalization)
        except Exception as error:
            self.omissions.failed("Scores of all tasks together", reason(error))
            self.combined = CombinedTasks([], [])

    def write(self) -> Path:
        """Write the page, its figures and its tables; return the path of the page."""
        parts: dict[str, Callable[[], str]] = {
            "What the numbers say": self._findings,
            "All tasks together": self._all_tasks,
            "Learning curves": partial(learning_html, self.content),
            "The representation": partial(health_html, self.content),
            "Single neurons": partial(densities_html, self.content),
            "Task by task": partial(small_multiples_html, self.content),
            "Runs": self._runs,
            "How to read this": self._terms,
        }
        attempt = self.omissions.attempt
        bodies = {name: attempt(f'The part "{name}"', part) for name, part in parts.items()}
        bodies = {name: body for name, body in bodies.items() if body}
        page = [
            runs_line(self.runs),
            f"<p>{escape(self._summary())}</p>",
            "<nav>" + " ".join(f'<a href="#{slug(n)}">{n}</a>' for n in bodies) + "</nav>",
        ]
        self.files.draw()
        for name, body in bodies.items():
            head = f'<h2 id="{slug(name)}">{name}</h2>'
            if name == "What the numbers say":
                page.append(f'<div class="verdict">{head}{body}</div>{self._caveats()}')
                page.append(charts.legend_html(self.styles, swatches(self.styles)))
            else:
                page.append(f"<section>{head}{body}</section>")
        page.append(charts.script_html(self.files.chart_data))
        body = self.files.fill_in("\n".join(page))
        path = self.files.folder / "index.html"
        write_document(path, self.title, body, charts.style(), charts.POLICY)
        return path

    def _summary(self) -> str:
        algorithms = dict.fromkeys(algorithm_name(section.algorithm) for section in self.sections)
        envs = dict.fromkeys(section.env for section in self.sections)
        seeds = [len(variant.runs) for section in self.sections for variant in section.variants]
        budgets = dict.fromkeys(f"{run.steps:,}" for run in self.runs)
        tasks = ", ".join(envs) if len(envs) <= 6 else f"{len(envs)} tasks"
        labels = dict.fromkeys(v.label for section in self.sections for v in section.variants)
        variants = " · ".join(labels) if len(labels) <= MOST_ROWS else f"{len(labels)} variants"
        return (
            f"{' and '.join(algorithms)} on {tasks}: {variants}; "
            f"{count_range(seeds, 'seed')} of each, "
            f"{' or '.join(budgets)} steps."
        )

    def _findings(self) -> str:
        all_tasks = "".join(map(comparisons_html, self.combined.scores))
        with_names = len(self.sections) > 1
        by_task = "".join(
            self.omissions.attempt(
                f"What the numbers of {section.name} say",
                partial(findings_html, section, with_name=with_names, with_limits=False),
            )
            for section in self.sections
        )
        if len(self.sections) > _OPEN_SECTIONS:
            by_task = f"<details><summary>Task by task</summary>{by_task}</details>"
        return all_tasks + by_task

    def _caveats(self) -> str:
        try:
            sentences = caveats(self.sections, self.problems)
        except Exception as error:
            self.omissions.failed("Caveats about the runs", reason(error))
            sentences = self.problems
        sentences = [*self.omissions.sentences, *sentences, *self.combined.failures]
        if not sentences:
            return ""
        items = [f"<li>{escape(sentence)}</li>" for sentence in dict.fromkeys(sentences)]
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
            name = algorithm_name(scores.algorithm)
            head = f"<h3>{escape(name)}</h3>" if with_names else ""
            make = partial(aggregates_html, scores, self.files, self.styles)
            html += head + self.omissions.attempt(f"{name} on all tasks together", make)
        return html

    def _runs(self) -> str:
        runs = [run for section in self.sections for run in section.runs]
        defaults = {
            (section.algorithm, section.env): self._default(section) for section in self.sections
        }
        table = self.files.table(run_tables.runs_table(runs, defaults), "words tight runs")
        table = folded(table, len(runs), f"All {len(runs)} runs")
        by_section = "".join(
            f"<details><summary>{escape(section.name)}: settings, versions, commands that repeat "
            f"each run</summary>{settings_html(section, defaults[section.algorithm, section.env])}"
            "</details>"
            for section in self.sections
        )
        return table + by_section

    def _default(self, section: Section) -> Mapping[str, Any] | None:
        return default_settings(self.default_of, section.algorithm, section.env)

    def _terms(self) -> str:
        terms = run_terms(self.runs)
        return terms_html(terms | MULTI_TASK_TERMS if self.combined.scores else terms)
