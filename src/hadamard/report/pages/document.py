"""One self-contained HTML page, light or dark: no script, font or image from anywhere else."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hadamard import __version__
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.draw import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --paper: #fff; --soft: #5b6470; --line: #e3e6ea;
        --shade: #f6f7f9; --accent: #0072B2; --said: #f3f7fa; --alarm: #c1121f; --ill: #fdf3f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --paper: #15181d; --soft: #9aa4b0; --line: #343a43; --shade: #1e2229;
          --accent: #56B4E9; --said: #1a222b; --alarm: #ff6b6b; --ill: #2b1b1d; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 68rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; overflow-wrap: anywhere; }
.meta, figcaption { color: var(--soft); font-size: .88rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
        font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace; }
th { font-weight: 600; font-family: inherit !important; }
.scroll { overflow-x: auto; }
.verdict { border-left: 4px solid var(--accent); background: var(--said); padding: .6rem 1rem;
           margin: .8rem 0; }
.verdict.sick { border-color: var(--alarm); background: var(--ill); }
.verdict p { margin: .2rem 0; }
.verdict h2 { margin: .2rem 0 .6rem; }
.verdict h3 { font-size: 1rem; margin: 1rem 0 .3rem; }
.verdict ul { margin: .2rem 0 .9rem; padding-left: 1.3rem; }
.note, .caption { color: var(--soft); font-size: .88rem; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
svg text { fill: currentColor; }
.grids { display: flex; flex-wrap: wrap; gap: 1rem; }
.grids figure { flex: 1 1 26rem; margin: 0; }
.grids + .grids { margin-top: 1rem; }
.panels { display: flex; flex-wrap: wrap; gap: 1rem; align-items: end; }
.panels figure { flex: 1 1 19rem; margin: 0; text-align: center; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; list-style: none; padding: 0; }
.legend svg { vertical-align: middle; }
.words td:first-child { font-family: inherit; white-space: nowrap; }
pre { font-size: .82rem; white-space: pre-wrap; overflow-wrap: anywhere;
      background: var(--shade); padding: .6rem .8rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
dt { font-weight: 600; margin-top: .5rem; }
dd { margin: 0 0 0 1.2rem; overflow-wrap: anywhere; }
"""

# What figures draw in shades of black follows the page from light to dark.
_THEMED = {
    "#000000": "currentColor",
    "#1d2129": "currentColor",
    "#222222": "currentColor",
    "#555555": "var(--soft)",
    "#e3e6ea": "var(--line)",
    "#c8ccd2": "var(--line)",
}
_SHADES = re.compile("|".join(_THEMED))
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_DIGITS = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is not seen

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

_GUIDE = {
    "dormant": "gives (nearly) the same output for every input. ReLU: zero for the whole batch. "
    "Smooth activations: the peak of the kernel density of the neuron's outputs is at least "
    "{threshold:g}.",
    "dead": "exactly zero for every input.",
    "saturated": "dormant and stuck near -1 or +1, so its outgoing weights act as a bias.",
    "constant": "exactly the same nonzero output for every input.",
    "effective rank": "how many directions hold {mass:.0%} of the singular-value mass of the "
    "representation, out of those possible on this batch.",
    "hidden bias": "share of the next layer's output (before its activation, in absolute "
    "contributions) that comes from dormant neurons and so does not depend on the input.",
}


def table_html(diagnosis: Mapping[str, Any]) -> str:
    """Return the layers' numbers as an HTML table."""
    return columns_html(
        {name: [cell(layer) for layer in diagnosis["layers"]] for name, cell in _COLUMNS.items()}
    )


def columns_html(columns: Mapping[str, Sequence[str]], kind: str = "numbers") -> str:
    """Return columns of cells, by their heads, as an HTML table of a CSS class."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in zip(*columns.values(), strict=True)
    )
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def svg(figure: Figure, name: str) -> str:
    """Return a figure as inline SVG, see ``inline``."""
    return inline(svg_file(figure, name))


def svg_file(figure: Figure, name: str) -> str:
    """Return a figure as an SVG file, real text in it and ids that depend on ``name`` alone."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    return buffer.getvalue()


def inline(file: str) -> str:
    """Return an SVG file as part of a page, whose colours it takes for its text and axes.

    Only tags are changed: of a coordinate two decimals are enough, what is to be read stays.
    """
    drawn = _METADATA.sub("", file[file.index("<svg") :])
    return _TAG.sub(lambda tag: _inline_tag(tag.group()), drawn)


def _inline_tag(tag: str) -> str:
    return _SHADES.sub(lambda found: _THEMED[found.group()], _DIGITS.sub(r"\1", tag))


def themed(colour: str) -> str:
    """Return a figure's colour as it is drawn in a page."""
    return _THEMED.get(colour, colour)


def _verdict(label: str, diagnosis: Mapping[str, Any]) -> str:
    lines = diagnosis["verdict"].splitlines()
    healthy = lines[0].startswith("Healthy")
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    kind = "verdict" if healthy else "verdict sick"
    return f'<div class="{kind}"><p><strong>{escape(label)}</strong></p>{body}</div>'


def guide(threshold: float, delta: float) -> dict[str, str]:
    """Explain the measures, by name."""
    facts = {"threshold": threshold, "mass": 1 - delta}
    return {term: text.format(**facts) for term, text in _GUIDE.items()}


def terms_html(terms: Mapping[str, str]) -> str:
    """Return terms and their explanations as a list."""
    pairs = (f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in terms.items())
    return f"<dl>{''.join(pairs)}</dl>"


def write_document(
    path: str | os.PathLike[str], title: str, body: str, style: str = "", policy: str = ""
) -> None:
    """Write a page in the house style; ``body`` is HTML.

    ``policy`` is what a browser shall allow the page, as in a Content-Security-Policy.
    """
    if policy:
        policy = f'\n<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">{policy}
<title>{escape(title)}</title>
<style>{_STYLE}{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
</body>
</html>
"""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(html, encoding="utf-8")


def write_page(
    path: str | os.PathLike[str],
    diagnoses: Mapping[str, Mapping[str, Any]],
    grids: Mapping[str, Sequence[KdeGrid]],
    title: str,
    intro: str = "",
    extra: Mapping[str, Figure] | None = None,
) -> None:
    """Write the diagnoses of one or more networks, with their figures, as one page.

    ``extra`` are further figures by caption, shown before the layers.
    """
    several = len(diagnoses) > 1
    first = next(iter(diagnoses.values()))
    tables = "".join(
        (f"<h3>{escape(label)}</h3>" if several else "") + table_html(diagnosis)
        for label, diagnosis in diagnoses.items()
    )
    densities = "".join(
        f'<figure role="img" aria-label="{escape(label)} {escape(grid.title)}">'
        f"{svg(figures.kde_grid(grid), f'{label}{i}')}"
        f"<figcaption>{escape(label)}, {escape(grid.title)}</figcaption></figure>"
        for label, of_label in grids.items()
        for i, grid in enumerate(of_label)
    )
    before = "".join(
        f"<figure>{svg(figure, caption)}<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, figure in (extra or {}).items()
    )
    body = f"""<p class="meta">Measured on {first["observations"]:,} observations · Hadamard \
{__version__}</p>
{"".join(f"<p>{escape(p)}</p>" for p in intro.splitlines() if p)}
{"".join(_verdict(label, diagnosis) for label, diagnosis in diagnoses.items())}
{before}
<h2>Layer by layer</h2>
<figure role="img" aria-label="Dormant neurons, effective rank and hidden bias by layer">
{svg(figures.health(diagnoses), "health")}</figure>
{tables}
<h2>What single neurons do</h2>
<p>Kernel densities of up to 16 neurons of each layer, evenly spread. Red outlines mark dormant
neurons: whatever the input, their output is the same.</p>
<div class="grids">{densities}</div>
<h2>How to read this</h2>
{terms_html(guide(first["threshold"], first["delta"]))}"""
    write_document(path, title, body)
