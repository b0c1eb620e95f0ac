"""The part of a report about several tasks of an algorithm: aggregates, profiles, comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw import aggregates as aggregate_figures
from hadamard.report.draw.charts import Chart, Line
from hadamard.report.draw.figures import MOST_ROWS, VariantStyle
from hadamard.report.draw.plain_text import escape
from hadamard.report.pages import run_tables
from hadamard.report.pages.findings import not_compared
from hadamard.report.pages.left_out import listed
from hadamard.report.pages.report_files import ReportFiles, slug
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.estimates import CONFIDENCE, RESAMPLES
from hadamard.report.statistics.multi_task import MultiTaskScores


def comparisons_html(scores: MultiTaskScores) -> str:
    """Return a sentence for every variant that compares it with the baseline."""
    sentences = [scores.comparison(label) for label in scores.compared]
    sentences += [
        not_compared(label, scores.baseline, reason)
        for label, reason in scores.not_compared.items()
    ]
    if not sentences:
        sentences = [f"{scores.baseline} is the only variant on all tasks."]
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    name = escape(algorithm_name(scores.algorithm))
    return f"<h3>{name}, all {len(scores.tasks)} tasks together</h3><ul>{items}</ul>"


def aggregates_html(
    scores: MultiTaskScores, files: ReportFiles, styles: Mapping[str, VariantStyle]
) -> str:
    """Return the aggregated learning curves, the figures of all aggregates, and their table."""
    name, unit = scores.algorithm, scores.unit.partition(" (")[0]
    labels = list(scores.scores)[:MOST_ROWS]
    chart = Chart(
        f"iqm-curve-{slug(name)}",
        f"{algorithm_name(name)}: IQM of {len(scores.tasks)} tasks",
        unit,
        [Line(label, styles[label], scores.steps, scores.curve(label)) for label in labels],
        "training steps" if scores.same_budget else "share of training (%)",
    )
    estimates = {
        _capitalized(AGGREGATES[key].label): scores.estimates(key)
        for key in scores.shown_aggregates
    }
    figures_html = files.chart(chart)
    for key, (title, by_label) in zip(scores.shown_aggregates, estimates.items(), strict=True):
        draw = partial(aggregate_figures.estimates, by_label, styles, title, unit)
        figures_html += files.figure(draw, f"{slug(key)}-{slug(name)}")
    if scores.improvements:
        draw = partial(aggregate_figures.improvements, scores.improvements, styles, scores.baseline)
        figures_html += files.figure(draw, f"improvement-{slug(name)}")
    draw = partial(aggregate_figures.profiles, *scores.profiles(), styles, unit)
    figures_html += files.figure(draw, f"profile-{slug(name)}")
    table = files.table(run_tables.aggregates_table(scores, estimates), "words tight")
    return (
        f'<div class="charts">{figures_html}</div>{table}'
        f'<p class="caption">{escape(_caption(scores))}</p>'
    )


def _caption(scores: MultiTaskScores) -> str:
    descriptions = "; ".join(
        f"{AGGREGATES[key].label}: {AGGREGATES[key].description}" for key in scores.shown_aggregates
    )
    return (
        f"{_capitalized(scores.unit)} on {listed(scores.tasks, 60)}. {descriptions}. "
        f"Intervals: {100 * CONFIDENCE:g} %, stratified bootstrap over seeds, "
        f"{RESAMPLES:,} draws; if any task has fewer than two seeds, there is no interval. "
        f"Baseline: {scores.baseline}. {' '.join(scores.left_out)}"
    )


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
