"""A report as a folder: the page, and every figure and table on it as files of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hadamard import __version__
from hadamard.report.data import imported
from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.runs import FloatArray, RunData, sections
from hadamard.report.draw import aggregates as aggregate_figures
from hadamard.report.draw import charts, figures
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.figures import VariantStyle
from hadamard.report.draw.pictures import Picture, draw_all
from hadamard.report.measures import HEALTH, MEASURES
from hadamard.report.pages import run_tables
from hadamard.report.pages.comparison import (
    DENSITIES_TEXT,
    DefaultOf,
    axis_label,
    contribution_bars,
    densities,
    reading_html,
    representation_words,
    score_words,
    styles_of,
    terms_of,
    what_was_run,
)
from hadamard.report.pages.document import inline, svg, terms_html, write_document
from hadamard.report.pages.dormancy import dormancy_table
from hadamard.report.pages.faults import faults
from hadamard.report.pages.reading import counted, not_compared, spanned
from hadamard.report.pages.tables import Table
from hadamard.report.statistics import estimates as stats
from hadamard.report.statistics.decision import TASKS_TO_RESAMPLE
from hadamard.report.statistics.together import COMPARED, Together, combine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAULTS = 12
_OPEN = 3
_LONG = 30
_AGGREGATE_TERMS = {
    "normalised score": "a score on a scale that tasks have in common, so that they may be "
    "averaged; the axis says what is 0 and what is 1.",
    "IQM": "interquartile mean: the mean of the middle half of all runs, so that neither a lucky "
    "run nor a failed one decides.",
    "probability of improvement": "how likely a run of one variant scores higher than a run of "
    "the other on the same task; 0.5 is no difference.",
    "performance profile": "for every score, the fraction of runs above it: the higher the line, "
    "the better.",
    "difference": f"the {stats.AGGREGATES[COMPARED].label} of a variant minus the baseline's on "
    "the same tasks, with its 95 % interval, by which all comparisons are made. From "
    f"{TASKS_TO_RESAMPLE} tasks on it allows for other tasks, as the shaded intervals do not.",
}


def write_report(
    folder: str | os.PathLike[str],
    runs: Sequence[RunData],
    title: str,
    default_of: DefaultOf | None = None,
    troubles: Iterable[str] = (),
    *,
    normalisation: str | None = None,
    curves: Sequence[ImportedCurve] = (),
) -> Path:
    """Write the report about some runs into a folder and return the path of its page.

    Args:
        folder: Where ``index.html``, ``figures/`` and ``tables/`` go.
        runs: The runs.
        title: The page's title.
        default_of: As of `write_comparison`.
        troubles: What of the runs could not be read, to be told on the page.
        normalisation: Of ``normalise.NORMALISATIONS``; by default the paper's for each algorithm.
        curves: Of other methods, to be drawn beside the runs' on the same tasks.
    """
    if not runs:
        raise ValueError("nothing to report: runs is empty")
    report = _Report(Path(folder), runs, title, default_of, list(troubles), normalisation, curves)
    return report.write()


class _Report:
    """A report in the making; what is shown is also written to a file."""

    def __init__(
        self,
        folder: Path,
        runs: Sequence[RunData],
        title: str,
        default_of: DefaultOf | None,
        troubles: Sequence[str],
        normalisation: str | None,
        curves: Sequence[ImportedCurve],
    ) -> None:
        self.folder = folder
        self.runs = runs
        self.title = title
        self.default_of = default_of
        self.troubles = troubles
        self.sections = sections(runs)
        tasks = {section.env for section in self.sections}
        self.curves = [curve for curve in curves if curve.env in tasks]
        self.styles = styles_of(self.sections)
        self.styles |= imported.styles_for(self.curves, len(self.styles))
        self.charts: list[Chart] = []
        self.pictures: dict[str, Picture] = {}
        self.combined = combine(self.sections, by=normalisation)
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def write(self) -> Path:
        parts = {
            "What the numbers say": self._said,
            "All tasks together": self._together,
            "Learning curves": self._learning,
            "The representation": self._health,
            "Single neurons": self._densities,
            "Task by task": self._multiples,
            "Runs": self._what_was_run,
            "How to read this": self._terms,
        }
        bodies = {name: make() for name, make in parts.items()}
        bodies = {name: body for name, body in bodies.items() if body}
        finished = sum(run.finished for run in self.runs)
        page = [
            f'<p class="meta">{counted(len(self.runs), "run")}, '
            f"{'all' if finished == len(self.runs) else finished} finished · Hadamard "
            f"{__version__}</p>",
            f"<p>{escape(self._compared())}</p>",
            "<nav>" + " ".join(f'<a href="#{slug(n)}">{n}</a>' for n in bodies) + "</nav>",
        ]
        for name, body in bodies.items():
            head = f'<h2 id="{slug(name)}">{name}</h2>'
            if name == "What the numbers say":
                page.append(f'<div class="verdict">{head}{body}</div>{self._faults()}')
                page.append(charts.legend_html(self.styles, self._swatches()))
            else:
                page.append(f"<section>{head}{body}</section>")
        page.append(charts.script_html(self.charts))
        drawn = dict(zip(self.pictures, draw_all(list(self.pictures.values())), strict=True))
        body = re.sub(
            r"<!--figure \d+-->", lambda mark: inline(drawn[mark.group()]), "\n".join(page)
        )
        path = self.folder / "index.html"
        write_document(path, self.title, body, charts.style(), charts.POLICY)
        return path

    # What becomes a file

    def _figure(
        self,
        draw: Callable[[], Figure],
        name: str,
        caption: str = "",
        kind: str = "wide fits",
    ) -> str:
        picture = self._picture(draw, name)
        told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return (
            f'<figure class="{kind}"><div role="img" aria-label="{escape(caption or name)}">'
            f"{picture}</div>{told}</figure>"
        )

    def _picture(self, draw: Callable[[], Figure], name: str) -> str:
        """Have a figure drawn and written; return what stands for it on the page until then."""
        path = self.folder / "figures" / name
        if any(picture.path == path for picture in self.pictures.values()):
            raise ValueError(f"two figures would be written to {path}: name them apart")
        mark = f"<!--figure {len(self.pictures)}-->"
        self.pictures[mark] = Picture(draw, path)
        return mark

    def _chart(self, chart: Chart) -> str:
        self.charts.append(chart)
        return charts.html(chart, self._picture(partial(charts.draw, chart), chart.name))

    def _table(self, table: Table, kind: str = "words") -> str:
        table.write(self.folder / "tables")
        return table.html(kind)

    def _swatches(self) -> dict[str, str]:
        return {label: svg(figures.swatch(style), label) for label, style in self.styles.items()}

    # The page, part by part

    def _compared(self) -> str:
        algorithms = dict.fromkeys(algorithm_name(section.algorithm) for section in self.sections)
        envs = dict.fromkeys(section.env for section in self.sections)
        seeds = [len(variant.runs) for section in self.sections for variant in section.variants]
        budgets = dict.fromkeys(f"{run.steps:,}" for run in self.runs)
        tasks = ", ".join(envs) if len(envs) <= 6 else f"{len(envs)} tasks"
        labels = dict.fromkeys(v.label for section in self.sections for v in section.variants)
        return (
            f"{' and '.join(algorithms)} on {tasks}: {' · '.join(labels)}; "
            f"{spanned(seeds)} seed{'' if max(seeds) == 1 else 's'} of each, "
            f"{' or '.join(budgets)} steps."
        )

    def _said(self) -> str:
        told = ""
        for one in self.combined.found:
            comparisons = "".join(
                f"<li>{escape(one.comparison(label))}</li>" for label in one.compared
            )
            comparisons += "".join(
                f"<li>{escape(not_compared(label, one.baseline, why))}</li>"
                for label, why in one.not_compared.items()
            )
            only = f"<li>{escape(one.baseline)} is the only variant on all tasks.</li>"
            name = escape(algorithm_name(one.algorithm))
            told += f"<h3>{name}, all {len(one.tasks)} tasks together</h3>"
            told += f"<ul>{comparisons or only}</ul>"
        several = len(self.sections) > 1
        each = "".join(
            reading_html(section, with_name=several, with_notes=False) for section in self.sections
        )
        if len(self.sections) > _OPEN:
            each = f"<details><summary>Task by task</summary>{each}</details>"
        return told + each

    def _faults(self) -> str:
        told = faults(self.sections, self.troubles) + self.combined.refused
        if not told:
            return ""
        first, rest = ("".join(f"<li>{escape(t)}</li>" for t in part)
                       for part in (told[:_FAULTS], told[_FAULTS:]))  # fmt: skip
        more = f"<details><summary>{len(told) - _FAULTS} more</summary><ul>{rest}</ul></details>"
        return (
            f'<div class="faults"><h2 id="mind">Mind this</h2><ul>{first}</ul>'
            f"{more if rest else ''}</div>"
        )

    def _together(self) -> str:
        several = len(self.combined.found) > 1
        return "".join(self._of_all_tasks(one, several) for one in self.combined.found)

    def _of_all_tasks(self, one: Together, named: bool) -> str:
        estimates = {stats.AGGREGATES[key].label: one.estimates(key) for key in one.shown}
        estimates = {name[0].upper() + name[1:]: of for name, of in estimates.items()}
        taus, profiles = one.profiles()
        styles, name = self.styles, one.algorithm
        unit = one.unit.partition(" (")[0]
        drawn = "".join(
            self._figure(
                partial(aggregate_figures.estimates, of, styles, title, unit),
                f"{slug(key)}-{name}",
            )
            for key, (title, of) in zip(one.shown, estimates.items(), strict=True)
        )
        if one.improvements:
            picture = partial(
                aggregate_figures.improvements, one.improvements, styles, one.baseline
            )
            drawn += self._figure(picture, f"improvement-{name}")
        picture = partial(aggregate_figures.profiles, taus, profiles, styles, unit)
        drawn += self._figure(picture, f"profile-{name}")
        xlabel = "training steps" if one.same_budget else "share of training (%)"
        lines = [
            charts.Line(label, styles[label], one.steps, one.curve(label)) for label in one.scores
        ]
        chart = Chart(
            f"iqm-curve-{name}", f"{algorithm_name(name)}: IQM of {len(one.tasks)} tasks",
            unit, lines, xlabel,
        )  # fmt: skip
        head = f"<h3>{escape(algorithm_name(name))}</h3>" if named else ""
        readings = "; ".join(
            f"{stats.AGGREGATES[key].label}: {stats.AGGREGATES[key].reading}" for key in one.shown
        )
        caption = (
            f"{one.unit[0].upper()}{one.unit[1:]} on {', '.join(one.tasks)}. {readings}. "
            f"Intervals: {stats.CONFIDENCE:.0%}, stratified bootstrap over seeds, "
            f"{stats.RESAMPLES:,} draws; with fewer than two seeds on any task there is none. "
            f"Baseline: {one.baseline}. {' '.join(one.left_out)}"
        ).replace("95%", "95 %")
        return (
            f'{head}<div class="charts">{self._chart(chart)}{drawn}</div>'
            f"{self._table(run_tables.aggregates(one, estimates), 'words tight')}"
            f'<p class="caption">{escape(caption)}</p>'
        )

    def _learning(self) -> str:
        drawn = [self._chart(chart) for chart in self._score_charts().values()]
        words = dict.fromkeys(score_words(section) for section in self.sections)
        captions = " ".join(words) if len(words) == 1 else " ".join(
            f"{section.name}: {score_words(section)}" for section in self.sections
        )  # fmt: skip
        table = run_tables.results(self.sections)
        return (
            f'<div class="charts">{"".join(drawn)}</div>'
            f'<p class="caption">{escape(captions)} {escape(self._interval_words())}</p>'
            f"{_folded(self._table(table, 'words tight results'), len(table), 'Final numbers')}"
            '<p class="caption">At the end: means over the finished seeds, with 95 % intervals '
            "of the mean (Student's t).</p>"
        )

    def _interval_words(self) -> str:
        seeds = [len(variant.runs) for section in self.sections for variant in section.variants]
        if max(seeds) == 1:
            return "One seed for each variant, so there is no interval to show."
        told = "Thick: mean of the seeds, where every seed has a value."
        crowd = max(len(section.variants) for section in self.sections) > charts.CROWD
        if min(seeds) <= charts.SEEDS:
            told += " Thin: each seed" + (
                f", where there are at most {charts.CROWD} variants." if crowd else "."
            )
        if max(seeds) >= charts.BAND_SEEDS:
            told += " Shaded: 95 % interval of the mean (Student's t), which with few seeds may "
            told += "reach beyond the picture."
        if min(seeds) < charts.BAND_SEEDS:
            told += f" With fewer than {charts.BAND_SEEDS} seeds no interval is drawn."
        if self.curves:
            methods = ", ".join(dict.fromkeys(curve.method for curve in self.curves))
            told += f" Dotted: {methods}, as supplied with --curves; they are in no other number."
        return told + " Dragging zooms, the legend hides variants."

    def _score_charts(self) -> dict[str, Chart]:
        found = {}
        for section in self.sections:
            grid = section.grid()
            lines = [(v.label, grid, v.score_curve(grid)) for v in section.variants]
            lines += [(c.method, c.steps, c.scores) for c in self.curves if c.env == section.env]
            found[section.name] = Chart(
                f"score-{slug(section.name)}", section.name, "score", self._lines(lines)
            )
        return found

    def _lines(self, curves: Iterable[tuple[str, Any, FloatArray]]) -> list[charts.Line]:
        """Return the lines of labels, steps and (seeds, steps) values; of those with any value."""
        return charts.uncrowded(
            [
                charts.line(label, self.styles[label], steps, values)
                for label, steps, values in curves
                if np.isfinite(values).any()
            ]
        )

    def _health(self) -> str:
        parts = []
        for measure in HEALTH:
            title, factor, drawn = MEASURES[measure].title, MEASURES[measure].factor, ""
            for section in self.sections:
                curves = [(v.label, *v.health_curve(measure)) for v in section.variants]
                lines = self._lines((name, at, factor * values) for name, at, values in curves)
                if lines:
                    drawn += self._chart(
                        Chart(f"{slug(title)}-{slug(section.name)}", section.name,
                              axis_label(section, measure), lines, from_zero=True)
                    )  # fmt: skip
            if drawn:
                parts.append(f'<h3>{title}</h3><div class="charts">{drawn}</div>')
        table = dormancy_table(self.sections)
        if table is not None:
            parts.append(
                "<h3>Dormant neurons, predicted and measured</h3>"
                f"{self._table(table, 'words tight')}"
                f'<p class="caption">{escape(table.caption)}.</p>'
            )
        received = "".join(
            self._figure(
                partial(figures.contributions, bars), f"contributions-{slug(section.name)}",
                section.name,
            )
            for section in self.sections
            if (bars := contribution_bars(section))
        )  # fmt: skip
        if received:
            head = "<h3>What the next layer receives at the end</h3>"
            parts.append(f'{head}<div class="charts">{received}</div>')
        if not parts:
            return "<p>No run has a health stream, so nothing is known of it.</p>"
        measured = escape(f"Measured on {representation_words(self.runs)}.")
        return f"<p>{measured}</p>{''.join(parts)}"

    def _densities(self) -> str:
        shown: dict[str, str] = {}
        skipped = []
        for section in self.sections:
            if section.algorithm in shown:
                skipped.append(section.env)
                continue
            rows = []
            for place, of_variant in enumerate(densities(section), start=1):
                whens = ["first", "last"] if len(of_variant) > 1 else ["last"]
                drawn = (
                    self._figure(
                        partial(figures.kde_grid, density.grid),
                        f"kde-{slug(section.name)}-{place}-{when}",
                        density.caption,
                    )
                    for when, density in zip(whens, of_variant, strict=True)
                )
                rows.append(f'<div class="grids">{"".join(drawn)}</div>')
            if rows:
                shown[section.algorithm] = f"<h3>{escape(section.name)}</h3>{''.join(rows)}"
        if not shown:
            return ""
        note = f"One task of each algorithm is shown; not {', '.join(skipped)}." if skipped else ""
        return f"<p>{DENSITIES_TEXT} {escape(note)}</p>{''.join(shown.values())}"

    def _multiples(self) -> str:
        by_algorithm: dict[str, dict[str, Chart]] = {}
        for section, chart in zip(self.sections, self._score_charts().values(), strict=True):
            by_algorithm.setdefault(section.algorithm, {})[section.env] = chart
        return "".join(
            self._figure(
                partial(
                    charts.small_multiples,
                    [replace(chart, title=env) for env, chart in of_env.items()],
                    self._legend(of_env.values()),
                ),
                f"tasks-{algorithm}",
                f"{algorithm_name(algorithm)}: scores over training on every task",
                kind="wide",
            )
            for algorithm, of_env in by_algorithm.items()
            if len(of_env) > 1
        )  # fmt: skip

    def _legend(self, shown: Iterable[Chart]) -> dict[str, VariantStyle]:
        labels = {line.label for chart in shown for line in chart.lines}
        return {label: style for label, style in self.styles.items() if label in labels}

    def _what_was_run(self) -> str:
        runs = [run for section in self.sections for run in section.runs]
        defaults: dict[tuple[str, str], Mapping[str, Any]] = {}
        if self.default_of is not None:
            for section in self.sections:
                key = section.algorithm, section.env
                defaults[key] = self.default_of(*key)
        table = self._table(run_tables.runs_table(runs, defaults), "words tight runs")
        table = _folded(table, len(runs), f"All {len(runs)} runs")
        each = "".join(
            f"<details><summary>{escape(section.name)}: settings, versions, commands that repeat "
            f"each run</summary>{what_was_run(section, self.default_of)}</details>"
            for section in self.sections
        )
        return table + each

    def _terms(self) -> str:
        terms = terms_of(self.runs)
        return terms_html(terms | _AGGREGATE_TERMS if self.combined.found else terms)


def _folded(table: str, rows: int, name: str) -> str:
    """Return a table, behind its name if it is long."""
    if rows <= _LONG:
        return table
    return f"<details><summary>{escape(name)}</summary>{table}</details>"


def slug(text: str) -> str:
    """Return text as the name of a file.

    Examples:
        >>> slug("DQN on minatar/space_invaders")
        'dqn-on-minatar-space_invaders'
    """
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
