"""The page about the diagnosis of one or more networks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hadamard import __version__
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.draw.densities import kde_grid
from hadamard.report.draw.layers import health
from hadamard.report.draw.plain_text import escape, plain
from hadamard.report.draw.svg import inline_figure
from hadamard.report.pages.document import columns_html, terms_html, write_document
from hadamard.report.pages.glossary import DENSITIES_TEXT, health_terms
from hadamard.report.pages.left_out import Omissions
from hadamard.report.pages.output import check_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "layer": lambda layer: layer["name"] or "(the network)",
    "neurons": lambda layer: f"{layer['neurons']:,}",
    "dormant": lambda layer: f"{layer['dormant_fraction']:.1%}",
    "dead": lambda layer: f"{layer['dead']:,}",
    "saturated": lambda layer: f"{layer['saturated']:,}",
    "constant": lambda layer: f"{layer['constant']:,}",
    "effective rank": lambda layer: f"{layer['effective_rank']} / {layer['full_rank']}",
    "hidden bias": lambda layer: (
        "–" if layer["hidden_bias_share"] is None else f"{layer['hidden_bias_share']:.1%}"
    ),
}


def layer_table_html(diagnosis: Mapping[str, Any]) -> str:
    """Return the measures of every layer as an HTML table."""
    return columns_html(
        {name: [cell(layer) for layer in diagnosis["layers"]] for name, cell in _COLUMNS.items()}
    )


def _verdict_html(label: str, diagnosis: Mapping[str, Any]) -> str:
    lines = diagnosis["verdict"].splitlines()
    healthy = lines[0].startswith("Healthy")
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    css_class = "verdict" if healthy else "verdict sick"
    return f'<div class="{css_class}"><p><strong>{escape(label)}</strong></p>{body}</div>'


def write_diagnosis_page(
    path: str | os.PathLike[str],
    diagnoses: Mapping[str, Mapping[str, Any]],
    grids: Mapping[str, Sequence[KdeGrid]],
    title: str,
    intro: str = "",
    further_figures: Mapping[str, Figure] | None = None,
) -> None:
    """Write the diagnoses of one or more networks, with their figures, as one page.

    ``further_figures``, by caption, are shown before the layers.
    """
    check_page(path)
    has_several_networks = len(diagnoses) > 1
    first = next(iter(diagnoses.values()))
    tables = "".join(
        (f"<h3>{escape(label)}</h3>" if has_several_networks else "") + layer_table_html(diagnosis)
        for label, diagnosis in diagnoses.items()
    )
    omissions = Omissions()

    def figure(draw: Callable[[], Figure], name: str, caption: str = "") -> str:
        name = plain(name)
        picture = omissions.attempt(f"The figure {name}", lambda: inline_figure(draw(), name))
        caption_html = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        label = escape(caption or name)
        return f'<figure role="img" aria-label="{label}">{picture}{caption_html}</figure>'

    densities = "".join(
        figure(partial(kde_grid, grid), f"{label}{i}", f"{label}, {grid.title}")
        for label, grids_of_network in grids.items()
        for i, grid in enumerate(grids_of_network)
    )
    further_html = "".join(
        figure(partial(_itself, further), caption, caption)
        for caption, further in (further_figures or {}).items()
    )
    layers = figure(partial(health, diagnoses), "Dormant neurons, effective rank and hidden bias")
    body = f"""<p class="meta">Measured on {first["observations"]:,} observations · Hadamard \
{__version__}</p>
{"".join(f"<p>{escape(p)}</p>" for p in intro.splitlines() if p)}
{"".join(_verdict_html(label, diagnosis) for label, diagnosis in diagnoses.items())}
{further_html}
<h2>Layer by layer</h2>
{layers}
{tables}
<h2>What single neurons do</h2>
<p>{DENSITIES_TEXT.format(layer="each layer")}</p>
<div class="grids">{densities}</div>
<h2>How to read this</h2>
{terms_html(health_terms(first["threshold"], first["delta"]))}"""
    write_document(path, title, body)


def _itself(figure: Figure) -> Figure:
    return figure
