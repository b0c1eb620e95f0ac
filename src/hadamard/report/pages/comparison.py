"""One page that compares training runs: the findings, and the figures behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, Variant, sections
from hadamard.report.draw import figures
from hadamard.report.draw.densities import kde_grid
from hadamard.report.draw.figures import MOST_ROWS, Curve, Panel, VariantStyle, first
from hadamard.report.draw.layers import contributions
from hadamard.report.draw.plain_text import escape
from hadamard.report.draw.svg import inline_figure
from hadamard.report.measures import HEALTH, MEASURES
from hadamard.report.pages.caveats import unreadable_parts
from hadamard.report.pages.document import columns_html, terms_html, write_document
from hadamard.report.pages.final_numbers import final_numbers
from hadamard.report.pages.glossary import DENSITIES_TEXT, run_terms
from hadamard.report.pages.left_out import MOST_FIGURES, Omissions, listed, too_many_figures
from hadamard.report.pages.output import check_page
from hadamard.report.pages.plain_runs import plain_runs, plain_sentences
from hadamard.report.pages.run_settings import DefaultOf, default_settings, settings_html
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
    swatches,
)
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
    check_page(path)
    runs = plain_runs(runs)
    page_sections = sections(runs)
    page = _Page(styles_of(page_sections))
    attempt = page.omissions.attempt
    with_names = len(page_sections) > 1
    verdicts = [
        attempt(
            f"What the numbers of {section.name} say",
            partial(findings_html, section, with_name=with_names),
        )
        for section in page_sections
    ]
    parts = [
        page.section(section, default_settings(default_of, section.algorithm, section.env))
        for section in page_sections
    ]
    problems = plain_sentences(list(problems))
    body = [
        runs_line(runs),
        '<div class="verdict"><h2>What the numbers say</h2>',
        *verdicts,
        notes_html((*page.notes(), *problems, *unreadable_parts(runs))),
        "</div>",
        *parts,
        f"<h2>How to read this</h2>{attempt('This part', lambda: terms_html(run_terms(runs)))}",
    ]
    write_document(path, title, "\n".join(body))


class _Page:
    """Makes the sections of a page; every figure is drawn at once, into the page alone."""

    def __init__(self, styles: Mapping[str, VariantStyle]) -> None:
        self.styles = styles
        self.swatches = swatches(styles)
        self.omissions = Omissions()
        self._figures = 0

    def notes(self) -> list[str]:
        """Return what the page leaves out."""
        further = self._figures - MOST_FIGURES
        if further <= 0:
            return self.omissions.sentences
        return [*self.omissions.sentences, too_many_figures(further)]

    def section(self, section: Section, default: Mapping[str, Any] | None) -> str:
        """Return the part of the page about a section."""
        parts: dict[str, Callable[[], str]] = {
            "legend": partial(self._legend, section),
            "learning curves": partial(self._learning, section),
            "final numbers": partial(_table, section),
            "hidden bias": partial(self._hidden_bias, section),
            "densities": partial(self._densities, section),
            "settings": partial(settings_html, section, default),
        }
        return "\n".join(
            [
                f"<h2>{escape(section.name)}</h2>",
                *(
                    self.omissions.attempt(f"{section.name}: the part on {name}", part)
                    for name, part in parts.items()
                ),
            ]
        )

    def _figure(self, draw: Callable[[], Figure], name: str, caption: str = "") -> str:
        """Return a figure; nothing if the page has `MOST_FIGURES` already."""
        self._figures += 1
        if self._figures > MOST_FIGURES:
            return ""
        html = self.omissions.attempt(f"The figure {name}", lambda: inline_figure(draw(), name))
        caption_html = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        picture = f'<div role="img" aria-label="{escape(name)}">{html}</div>'
        return f"<figure>{picture}{caption_html}</figure>"

    def _legend(self, section: Section) -> str:
        entries = "".join(
            f"<li>{self.swatches[v.label]} {escape(v.label)}</li>" for v in section.variants
        )
        return f'<ul class="legend">{entries}</ul>'

    def _learning(self, section: Section) -> str:
        health = ("dormant_fraction", "effective_rank")
        health_panels = _health_panels(section, self.styles, health)
        figures_html = "".join(
            self._figure(
                partial(figures.curves, *panel), f"{section.name}: {panel.title} over training"
            )
            for panel in [_score_panel(section, self.styles), *health_panels]
        )
        measured = (
            f"Dormant neurons and effective rank are those of {representation_words(section.runs)}."
            if health_panels
            else "The runs have no diagnosis of the representation."
        )
        return (
            f'<div class="panels">{figures_html}</div><p class="caption">'
            f"{escape(score_words(section))} {escape(measured)} {_seeds_caption(section)}</p>"
        )

    def _hidden_bias(self, section: Section) -> str:
        panels = _health_panels(section, self.styles, ["hidden_bias_share"])
        if not panels:
            return ""
        bars = contribution_bars(section)
        figures_html = self._figure(
            partial(figures.curves, *panels[0]), f"{section.name}: hidden bias over training"
        )
        if bars:
            draw = partial(contributions, bars)
            figures_html += self._figure(draw, f"{section.name}: parts at the end")
        absent = [v.label for v in section.variants if v.label not in bars]
        not_measured = f" Not measured at the end: {listed(absent, MOST_ROWS)}." if absent else ""
        return (
            "<h3>What the next layer receives</h3>"
            f'<div class="panels">{figures_html}</div><p class="caption">Left: over training. '
            "Right: at the last diagnosis, means over the finished seeds."
            f"{escape(not_measured)}</p>"
        )

    def _densities(self, section: Section) -> str:
        variants, cut = first(section.variants, MOST_ROWS)
        rows = "".join(
            self.omissions.attempt(
                f"The densities of {variant.label} in {section.name}",
                partial(self._density_row, section, variant),
            )
            for variant in variants
        )
        if not rows:
            return ""
        if cut:
            rows += self.omissions.note(f"{section.name}: densities are of the {cut} variants.")
        explanation = DENSITIES_TEXT.format(layer="the representation")
        return f"<h3>What single neurons do</h3><p>{explanation}</p>{rows}"

    def _density_row(self, section: Section, variant: Variant) -> str:
        figures_html = "".join(
            self._figure(partial(kde_grid, grid), name, caption)
            for name, caption, grid in densities(section, variant)
        )
        return f'<div class="grids">{figures_html}</div>' if figures_html else ""


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
    cells, caption = final_numbers(section)
    return columns_html(cells, "words") + f'<p class="caption">{caption}</p>'
