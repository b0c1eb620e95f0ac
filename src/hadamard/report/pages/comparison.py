"""One page that compares training runs: the findings, and the figures behind them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, Variant, sections
from hadamard.report.draw import figures
from hadamard.report.draw.figures import Curve, Panel, VariantStyle
from hadamard.report.draw.svg import inline_figure
from hadamard.report.measures import HEALTH, MEASURES, SCORES, ScoreKind, number
from hadamard.report.pages.caveats import unreadable_parts
from hadamard.report.pages.document import columns_html, terms_html, write_document
from hadamard.report.pages.glossary import DENSITIES_TEXT, run_terms
from hadamard.report.pages.run_settings import DefaultOf, settings_html
from hadamard.report.pages.section_content import (
    axis_label,
    contribution_bars,
    densities,
    findings_html,
    notes_html,
    representation_words,
    runs_line,
    score_words,
    styles_of,
)
from hadamard.report.statistics.task_scores import finite
from hadamard.text import count_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_comparison(
    path: str | os.PathLike[str],
    runs: Sequence[RunData],
    title: str,
    default_of: DefaultOf | None = None,
    problems: Iterable[str] = (),
) -> None:
    """Write one self-contained page that compares the runs.

    With ``default_of`` the commands on the page only have the settings that differ from the
    default, without it all of the experiment. ``problems`` are sentences about runs that could not
    be read, which the page shows.
    """
    if not runs:
        raise ValueError("nothing to compare: runs is empty")
    page_sections = sections(runs)
    styles = styles_of(page_sections)
    body = [
        runs_line(runs),
        '<div class="verdict"><h2>What the numbers say</h2>',
        *(findings_html(section, with_name=len(page_sections) > 1) for section in page_sections),
        notes_html((*problems, *unreadable_parts(runs))),
        "</div>",
        *(_section_html(section, styles, default_of) for section in page_sections),
        f"<h2>How to read this</h2>{terms_html(run_terms(runs))}",
    ]
    write_document(path, title, "\n".join(body))


def _section_html(
    section: Section,
    styles: Mapping[str, VariantStyle],
    default_of: DefaultOf | None,
) -> str:
    return "\n".join(
        [
            f"<h2>{escape(section.name)}</h2>",
            _legend(section, styles),
            _learning(section, styles),
            _table(section),
            _hidden_bias(section, styles),
            _densities(section),
            settings_html(section, default_of),
        ]
    )


def _legend(section: Section, styles: Mapping[str, VariantStyle]) -> str:
    entries = "".join(
        f"<li>{inline_figure(figures.swatch(styles[v.label]), v.label)} {escape(v.label)}</li>"
        for v in section.variants
    )
    return f'<ul class="legend">{entries}</ul>'


def _figure(figure: Figure, name: str, caption: str = "") -> str:
    caption_html = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    picture = f'<div role="img" aria-label="{escape(name)}">{inline_figure(figure, name)}</div>'
    return f"<figure>{picture}{caption_html}</figure>"


def health_curves(
    section: Section, styles: Mapping[str, VariantStyle], measure: str
) -> list[Curve]:
    """Return the curves of the variants that have the measure, in the unit of its axis."""
    curves = []
    for variant in section.variants:
        steps, values = variant.health_curve(measure)
        if np.isfinite(values).any():
            curves.append(Curve(styles[variant.label], steps, MEASURES[measure].factor * values))
    return curves


def overview(runs: Sequence[RunData]) -> Figure:
    """Draw score, dormant neurons, effective rank and hidden bias, a row for each section."""
    page_sections = sections(runs)
    styles = styles_of(page_sections)
    rows = {
        section.name: [_score_panel(section, styles), *_health_panels(section, styles, HEALTH)]
        for section in page_sections
    }
    return figures.panels(rows, styles)


def _score_panel(section: Section, styles: Mapping[str, VariantStyle]) -> Panel:
    grid = section.grid()
    scores = [Curve(styles[v.label], grid, v.score_curve(grid)) for v in section.variants]
    return Panel(scores, "Score", MEASURES["score"].unit)


def _health_panels(
    section: Section, styles: Mapping[str, VariantStyle], measures: Iterable[str]
) -> list[Panel]:
    """Return a panel for each of the measures that any variant has."""
    return [
        Panel(curves, MEASURES[key].title, axis_label(section, key), from_zero=True)
        for key in measures
        if (curves := health_curves(section, styles, key))
    ]


def _learning(section: Section, styles: Mapping[str, VariantStyle]) -> str:
    health_panels = _health_panels(section, styles, ("dormant_fraction", "effective_rank"))
    panels = [_score_panel(section, styles), *health_panels]
    figures_html = "".join(
        _figure(figures.curves(*panel), f"{section.name}: {panel.title} over training")
        for panel in panels
    )
    health = (
        f"Dormant neurons and effective rank are those of {representation_words(section.runs)}."
        if health_panels
        else "The runs have no diagnosis of the representation."
    )
    return (
        f'<div class="panels">{figures_html}</div><p class="caption">'
        f"{escape(score_words(section))} {escape(health)} {_seeds_caption(section)}</p>"
    )


def _seeds_caption(section: Section) -> str:
    counts = [len(variant.runs) for variant in section.variants]
    if max(counts) == 1:
        return "One seed for each variant, so there is no range to show."
    return (
        f"{count_range(counts, 'seed')} for each variant. Thick: their mean, where every seed has "
        "a value. Thin: each seed. Shaded: from the lowest to the highest seed; this is not a "
        "confidence interval."
    )


def _table(section: Section) -> str:
    variants = section.variants
    score_kinds: dict[ScoreKind, None] = dict.fromkeys(v.score_kind for v in variants)
    cells = {
        "variant": [v.label for v in variants],
        "score by seed": [" · ".join(_seed_cell(run) for run in v.runs) for v in variants],
    }
    for key in ("score", "training_score", *HEALTH, "steps_per_second"):
        if key == "training_score" and set(score_kinds) == {"training"}:
            continue  # it is the score
        cell = _rank_cell if key == "effective_rank" else partial(_cell, measure=key)
        cells[MEASURES[key].column] = [cell(v) for v in variants]
    cells = {name: column for name, column in cells.items() if set(column) != {"–"}}
    caption = (
        "Numbers at the end: means over the finished seeds. Score: "
        f"{', or '.join(SCORES[kind].final for kind in score_kinds)}. Dormant neurons, rank and "
        "hidden bias are those of the last diagnosis."
    )
    if "training score" in cells:
        caption += f" Training score: {SCORES['training'].final}."
    return columns_html(cells, "words") + f'<p class="caption">{caption}</p>'


def _seed_cell(run: RunData) -> str:
    score = run.final("score")
    text = number(score) if math.isfinite(score) else "–"
    return text if run.finished else f"({text} at {run.reached:,} steps)"


def _cell(variant: Variant, measure: str) -> str:
    values = finite(variant.finals(measure))
    return MEASURES[measure].text(float(values.mean())) if values.size else "–"


def _rank_cell(variant: Variant) -> str:
    rank, full = (_cell(variant, name) for name in ("effective_rank", "full_rank"))
    return rank if "–" in (rank, full) else f"{rank} / {full}"


def _hidden_bias(section: Section, styles: Mapping[str, VariantStyle]) -> str:
    panels = _health_panels(section, styles, ["hidden_bias_share"])
    if not panels:
        return ""
    bars = contribution_bars(section)
    figures_html = _figure(figures.curves(*panels[0]), f"{section.name}: hidden bias over training")
    if bars:
        figures_html += _figure(figures.contributions(bars), f"{section.name}: parts at the end")
    absent = [v.label for v in section.variants if v.label not in bars]
    not_measured = f" Not measured at the end: {', '.join(absent)}." if absent else ""
    return (
        "<h3>What the next layer receives</h3>"
        f'<div class="panels">{figures_html}</div><p class="caption">Left: over training. Right: '
        f"at the last diagnosis, means over the finished seeds.{escape(not_measured)}</p>"
    )


def _densities(section: Section) -> str:
    rows = ""
    for variant_densities in densities(section):
        grids = (
            _figure(figures.kde_grid(grid), name, caption)
            for name, caption, grid in variant_densities
        )
        rows += f'<div class="grids">{"".join(grids)}</div>'
    if not rows:
        return ""
    explanation = DENSITIES_TEXT.format(layer="the representation")
    return f"<h3>What single neurons do</h3><p>{explanation}</p>{rows}"
