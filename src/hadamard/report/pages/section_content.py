"""The content of a section on a page: its texts, its numbers and its variants' styles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hadamard import __version__
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, Variant
from hadamard.report.draw import figures
from hadamard.report.draw.figures import VariantStyle
from hadamard.report.draw.plain_text import escape
from hadamard.report.draw.svg import inline_figure
from hadamard.report.measures import MEASURES, PART_SHARES, PARTS, SCORES, ScoreKind
from hadamard.report.pages.findings import findings, limits
from hadamard.report.statistics.task_scores import finite
from hadamard.text import counted


def styles_of(sections: Sequence[Section]) -> dict[str, VariantStyle]:
    """Return the style of every variant on a page, by label."""
    labels = dict.fromkeys(v.label for section in sections for v in section.variants)
    return {label: figures.variant_style(i) for i, label in enumerate(labels)}


def swatches(styles: Mapping[str, VariantStyle]) -> dict[str, str]:
    """Return for every label a piece of its line as HTML."""
    by_style = {
        style: inline_figure(figures.swatch(style), " ".join(style))
        for style in dict.fromkeys(styles.values())
    }
    return {label: by_style[style] for label, style in styles.items()}


def runs_line(runs: Sequence[RunData]) -> str:
    """Return the line at the top of a page: how many runs there are, and how many are finished."""
    finished = sum(run.finished for run in runs)
    return (
        f'<p class="meta">{counted(len(runs), "run")}, '
        f"{'all' if finished == len(runs) else finished} finished · Hadamard {__version__}</p>"
    )


def findings_html(section: Section, *, with_name: bool, with_limits: bool = True) -> str:
    """Return the section's findings, and what limits them."""
    name = f"<h3>{escape(section.name)}</h3>" if with_name else ""
    body = "".join(
        f"<p><strong>{escape(headline)}</strong></p>"
        f"<ul>{''.join(f'<li>{escape(detail)}</li>' for detail in details)}</ul>"
        for headline, details in findings(section)
    )
    return name + body + (notes_html(limits(section)) if with_limits else "")


def notes_html(notes: Iterable[str]) -> str:
    """Return sentences as notes, each a paragraph."""
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def score_words(section: Section) -> str:
    """Return what a point of the score curves is."""
    labels_by_kind: dict[ScoreKind, list[str]] = {}
    for variant in section.variants:
        labels_by_kind.setdefault(variant.score_kind, []).append(variant.label)
    if len(labels_by_kind) == 1:
        return f"Score: {SCORES[next(iter(labels_by_kind))].curve}."
    return " ".join(
        f"Score of {', '.join(labels)}: {SCORES[kind].curve}."
        for kind, labels in labels_by_kind.items()
    )


def representation_words(runs: Iterable[RunData]) -> str:
    """Return the name of the layer whose health is shown."""
    layers = dict.fromkeys(run.representation for run in runs if run.representation)
    return f"the representation, the last hidden layer ({' or '.join(layers)})"


def axis_label(section: Section, measure: str) -> str:
    """Return a measure's unit, for ranks with the highest possible if that is always the same."""
    unit = MEASURES[measure].unit
    if measure != "effective_rank":
        return unit
    full_ranks = {rank for run in section.runs for rank in finite(run.health["full_rank"])}
    return f"{unit} (of {full_ranks.pop():g})" if len(full_ranks) == 1 else unit


def contribution_bars(section: Section) -> dict[str, dict[str, float]]:
    """Return the parts of what the next layer receives at the end, as shares.

    Variants that lack any part are left out.
    """
    shares = {
        v.label: {
            part: finite(v.finals(share)) for part, share in zip(PARTS, PART_SHARES, strict=True)
        }
        for v in section.variants
    }
    return {
        label: {part: float(values.mean()) for part, values in parts.items()}
        for label, parts in shares.items()
        if all(values.size for values in parts.values())
    }


class Density(NamedTuple):
    """A grid of densities with its name and caption."""

    name: str
    caption: str
    grid: KdeGrid


def densities(section: Section, variant: Variant) -> list[Density]:
    """Return the grids of one of a variant's seeds: an early one and the last, or fewer."""
    run = next((run for run in variant.runs if run.snapshots), None)
    if run is None:
        return []
    return [
        Density(
            f"{section.name}: {variant.label} at step {step}",
            f"{variant.label}, seed {run.seed}: after {step / run.steps:.0%} of the budget "
            f"({step:,} steps)",
            grid,
        )
        for step, grid in run.snapshots
    ]
