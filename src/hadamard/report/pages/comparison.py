"""One page that compares training runs: what the numbers say, and the figures behind it."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hadamard import __version__
from hadamard.core.config import flattened
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.data.runs import RunData, Section, Variant, sections
from hadamard.report.draw import figures
from hadamard.report.draw.figures import Curve, Panel, VariantStyle
from hadamard.report.measures import (
    HEALTH,
    MEASURES,
    PART_SHARES,
    PARTS,
    SCORES,
    ScoreKind,
    number,
)
from hadamard.report.pages.document import columns_html, guide, svg, terms_html, write_document
from hadamard.report.pages.reading import counted, finite, notes, reading, spanned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What is allowed to differ between the runs of a variant.
_NOT_SETTINGS = ("env", "seed", "run_dir", "device")
# What of the loop's settings shows in the results.
_TRAIN = (
    "train.steps", "train.until", "train.health_every", "train.health_samples",
    "train.greedy_envs", "train.eval_every",
)  # fmt: skip

DefaultOf = Callable[[str, str], Mapping[str, Any]]


def write_comparison(
    path: str | os.PathLike[str],
    runs: Sequence[RunData],
    title: str,
    default_of: DefaultOf | None = None,
    troubles: Iterable[str] = (),
) -> None:
    """Write one self-contained page that compares the runs.

    ``default_of(algorithm, env)`` returns the default spec, as a run's config would have it.
    With it the commands on the page name only what differs, without it the whole experiment.
    ``troubles`` is what of the runs could not be read, to be told on the page.
    """
    if not runs:
        raise ValueError("nothing to compare: runs is empty")
    parts = sections(runs)
    styles = styles_of(parts)
    finished = sum(run.finished for run in runs)
    body = [
        f'<p class="meta">{counted(len(runs), "run")}, '
        f"{'all' if finished == len(runs) else finished} finished · Hadamard {__version__}</p>",
        '<div class="verdict"><h2>What the numbers say</h2>',
        *(reading_html(part, with_name=len(parts) > 1) for part in parts),
        *(f'<p class="note">{escape(text)}</p>' for text in (*troubles, *damage(runs))),
        "</div>",
        *(_section_html(part, styles, default_of) for part in parts),
        f"<h2>How to read this</h2>{terms_html(terms_of(runs))}",
    ]
    write_document(path, title, "\n".join(body))


def damage(runs: Sequence[RunData]) -> list[str]:
    """Say what of the runs could not be read."""
    return [
        f"{run.label}, seed {run.seed}, on {run.env}: {trouble}; the rest of it is used."
        for run in runs
        for trouble in run.troubles
    ]


def reading_html(section: Section, with_name: bool, with_notes: bool = True) -> str:
    """Return what the section's numbers say, and what limits it."""
    name = f"<h3>{escape(section.name)}</h3>" if with_name else ""
    findings = "".join(
        f"<p><strong>{escape(headline)}</strong></p>"
        f"<ul>{''.join(f'<li>{escape(detail)}</li>' for detail in details)}</ul>"
        for headline, details in reading(section)
    )
    limits = notes(section) if with_notes else []
    return name + findings + "".join(f'<p class="note">{escape(n)}</p>' for n in limits)


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
            what_was_run(section, default_of),
        ]
    )


def _legend(section: Section, styles: Mapping[str, VariantStyle]) -> str:
    entries = "".join(
        f"<li>{svg(figures.swatch(styles[v.label]), v.label)} {escape(v.label)}</li>"
        for v in section.variants
    )
    return f'<ul class="legend">{entries}</ul>'


def _figure(figure: Figure, name: str, caption: str = "") -> str:
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    picture = f'<div role="img" aria-label="{escape(name)}">{svg(figure, name)}</div>'
    return f"<figure>{picture}{told}</figure>"


def health_curves(
    section: Section, styles: Mapping[str, VariantStyle], measure: str
) -> list[Curve]:
    """Return the curves of those variants that have the measure, as its axis has them."""
    found = []
    for variant in section.variants:
        steps, values = variant.health_curve(measure)
        if np.isfinite(values).any():
            found.append(Curve(styles[variant.label], steps, MEASURES[measure].factor * values))
    return found


def overview(runs: Sequence[RunData]) -> Figure:
    """Draw score, dormant neurons, effective rank and hidden bias, a row for each section."""
    found = sections(runs)
    styles = styles_of(found)
    rows = {
        section.name: [_score_panel(section, styles), *_health_panels(section, styles, HEALTH)]
        for section in found
    }
    return figures.panels(rows, styles)


def styles_of(found: Sequence[Section]) -> dict[str, VariantStyle]:
    """Give every variant of a page its style."""
    labels = dict.fromkeys(v.label for section in found for v in section.variants)
    return {label: figures.variant_style(i) for i, label in enumerate(labels)}


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
    drawn = "".join(
        _figure(figures.curves(*panel), f"{section.name}: {panel.title} over training")
        for panel in panels
    )
    health = (
        f"Dormant neurons and effective rank are those of {representation_words(section.runs)}."
        if health_panels
        else "No diagnosis of the representation was written."
    )
    return (
        f'<div class="panels">{drawn}</div><p class="caption">{escape(score_words(section))} '
        f"{escape(health)} {_seeds_caption(section)}</p>"
    )


def score_words(section: Section) -> str:
    """Say what the scores over training are."""
    kinds: dict[ScoreKind, list[str]] = {}
    for variant in section.variants:
        kinds.setdefault(variant.score_kind, []).append(variant.label)
    if len(kinds) == 1:
        return f"Score: {SCORES[next(iter(kinds))].curve}."
    return " ".join(f"Score of {', '.join(of)}: {SCORES[k].curve}." for k, of in kinds.items())


def representation_words(runs: Iterable[RunData]) -> str:
    """Name the layer whose health is shown."""
    layers = dict.fromkeys(run.representation for run in runs if run.representation)
    return f"the representation, the last hidden layer ({' or '.join(layers)})"


def _seeds_caption(section: Section) -> str:
    counts = [len(variant.runs) for variant in section.variants]
    if max(counts) == 1:
        return "One seed for each variant, so there is no range to show."
    return (
        f"{spanned(counts)} seeds for each variant. Thick: their mean, where every seed has a "
        "value. Thin: each seed. Shaded: from the lowest to the highest seed, not a confidence "
        "interval."
    )


def axis_label(section: Section, measure: str) -> str:
    """Return a measure's unit; with ranks the highest possible, where all have the same."""
    unit = MEASURES[measure].unit
    if measure != "effective_rank":
        return unit
    full = {r for run in section.runs for r in finite(run.health["full_rank"])}
    return f"{unit} (of {full.pop():g})" if len(full) == 1 else unit


def _table(section: Section) -> str:
    variants = section.variants
    kinds: dict[ScoreKind, None] = dict.fromkeys(variant.score_kind for variant in variants)
    cells = {
        "variant": [v.label for v in variants],
        "score by seed": [" · ".join(_seed_cell(run) for run in v.runs) for v in variants],
    }
    for key in ("score", "training_score", *HEALTH, "steps_per_second"):
        if key == "training_score" and set(kinds) == {"training"}:
            continue  # it is the score
        cell = _rank_cell if key == "effective_rank" else partial(_cell, measure=key)
        cells[MEASURES[key].column] = [cell(v) for v in variants]
    cells = {name: column for name, column in cells.items() if set(column) != {"–"}}
    caption = (
        "At the end, means over the finished seeds. Score: "
        f"{', or '.join(SCORES[kind].final for kind in kinds)}; health is that of the last "
        "diagnosis."
    )
    if "training score" in cells:
        caption += f" Training score: {SCORES['training'].final}."
    return columns_html(cells, "words") + f'<p class="caption">{caption}</p>'


def _seed_cell(run: RunData) -> str:
    score = run.final("score")
    told = number(score) if math.isfinite(score) else "–"
    return told if run.finished else f"({told} at {run.reached:,} steps)"


def _cell(variant: Variant, measure: str) -> str:
    sound = finite(variant.finals(measure))
    return MEASURES[measure].text(float(sound.mean())) if sound.size else "–"


def _rank_cell(variant: Variant) -> str:
    rank, full = (_cell(variant, name) for name in ("effective_rank", "full_rank"))
    return rank if "–" in (rank, full) else f"{rank} / {full}"


def contribution_bars(section: Section) -> dict[str, dict[str, float]]:
    """Return what the next layer receives at the end, as shares; of variants that have it all."""
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


def _hidden_bias(section: Section, styles: Mapping[str, VariantStyle]) -> str:
    panels = _health_panels(section, styles, ["hidden_bias_share"])
    if not panels:
        return ""
    bars = contribution_bars(section)
    drawn = _figure(figures.curves(*panels[0]), f"{section.name}: hidden bias over training")
    if bars:
        drawn += _figure(figures.contributions(bars), f"{section.name}: parts at the end")
    absent = [v.label for v in section.variants if v.label not in bars]
    unmeasured = f" Not measured at the end: {', '.join(absent)}." if absent else ""
    return (
        "<h3>What the next layer receives</h3>"
        f'<div class="panels">{drawn}</div><p class="caption">Left over training, right at the '
        f"last diagnosis as means over the finished seeds.{escape(unmeasured)}</p>"
    )


class Density(NamedTuple):
    """A grid of densities and the words for it."""

    name: str
    caption: str
    grid: KdeGrid


def densities(section: Section) -> list[list[Density]]:
    """Return for each variant the grids of one of its seeds, early on and last."""
    found = []
    for variant in section.variants:
        run = next((run for run in variant.runs if run.snapshots), None)
        if run is None:
            continue
        found.append(
            [
                Density(
                    f"{section.name}: {variant.label} at step {step}",
                    f"{variant.label}, seed {run.seed}: after {step / run.steps:.0%} of the budget "
                    f"({step:,} steps)",
                    grid,
                )
                for step, grid in run.snapshots
            ]
        )
    return found


DENSITIES_TEXT = (
    "Kernel densities of up to 16 neurons of the representation, evenly spread. Red outlines mark "
    "dormant neurons: whatever the input, their output is the same."
)


def _densities(section: Section) -> str:
    drawn = ""
    for of_variant in densities(section):
        grids = (_figure(figures.kde_grid(grid), name, text) for name, text, grid in of_variant)
        drawn += f'<div class="grids">{"".join(grids)}</div>'
    return f"<h3>What single neurons do</h3><p>{DENSITIES_TEXT}</p>{drawn}" if drawn else ""


# What was run


def what_was_run(section: Section, default_of: DefaultOf | None) -> str:
    """Return a section's settings, and the commands that repeat its runs."""
    default = default_of(section.algorithm, section.env) if default_of else None
    runs = section.runs
    facts = {
        "algorithm": section.algorithm,
        "environment": section.env,
        "budget": _joined(f"{run.steps:,}" for run in runs) + " steps",
        "versions": ", ".join(
            f"{name} {_joined(run.versions.get(name, 'none') for run in runs)}"
            for name in dict.fromkeys(name for run in runs for name in run.versions)
        ),
        "commit": _joined(run.commit or "not recorded" for run in runs),
    }
    settings = dict.fromkeys(name for run in runs for name in run.spec)
    values = {
        name: [_joined(_setting(run.spec.get(name)) for run in v.runs) for v in section.variants]
        for name in settings
        if name not in _NOT_SETTINGS
    }
    differing = {name: column for name, column in values.items() if len(set(column)) > 1}
    seeds = [", ".join(str(run.seed) for run in v.runs) for v in section.variants]
    labels = [variant.label for variant in section.variants]
    shared = "\n".join(f"{n} = {column[0]}" for n, column in values.items() if n not in differing)
    commands = "".join(
        f"<p>{escape(variant.label)}</p><pre>"
        + escape("\n".join(command(run, default) for run in variant.runs))
        + "</pre>"
        for variant in section.variants
    )
    return (
        f"<h3>What was run</h3>{terms_html(facts)}<p>Seeds, and the settings that differ:</p>"
        + columns_html({"variant": labels, "seeds": seeds, **differing}, "words")
        + f"<details><summary>Settings they share</summary><pre>{escape(shared)}</pre></details>"
        f"<details><summary>Commands that repeat the runs</summary>{commands}</details>"
    )


def _joined(values: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(values))


def _setting(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def command(run: RunData, default: Mapping[str, Any] | None = None) -> str:
    """Return the command that repeats a run, naming what differs from the default spec.

    Without the default everything is named but how often what is written.
    """
    known = flattened(default) if default is not None else {}
    words = ["hadamard", "train", run.algorithm, "--env", run.env, "--seed", str(run.seed)]
    for name, value in run.spec.items():
        if name in _NOT_SETTINGS or (name in known and _setting(known[name]) == _setting(value)):
            continue
        if default is None and name.startswith("train.") and name not in _TRAIN:
            continue
        head, _, last = name.rpartition(".")
        # As the command line spells names: lambda_ keeps its underscore.
        last = re.sub("(?<=[a-z0-9])_(?=[a-z0-9])", "-", last)
        prefix = f"--{head}." if head else "--"
        if isinstance(value, bool):
            words.append(f"{prefix}{'' if value else 'no-'}{last}")
        else:
            items = value if isinstance(value, list | tuple) else [value]
            words += [f"{prefix}{last}", *map(str, items)]
    return shlex.join(words)


def terms_of(runs: Sequence[RunData]) -> dict[str, str]:
    """Explain the words of a page about these runs."""
    kinds = [kind for kind in SCORES if any(run.score_kind == kind for run in runs)]
    score = " ".join(f"Of runs judged by {SCORES[k].of}: {SCORES[k].meaning}" for k in kinds)
    terms = {
        "score": score if len(kinds) > 1 else SCORES[kinds[0]].meaning,
        "seed": "a repetition with other random numbers.",
        "higher, lower, more, fewer": "the 95 % interval of the difference between two variants' "
        "means excludes 0. It is a bootstrap over seeds, widened for how few there are.",
        "no difference shown": "the interval contains 0, or there are too few seeds. It does not "
        "mean that there is no difference.",
    }
    for run in runs:
        if run.threshold is not None and run.delta is not None:
            measures = guide(run.threshold, run.delta)
            terms |= {m: measures[m] for m in ("dormant", "effective rank", "hidden bias")}
            break
    return terms
