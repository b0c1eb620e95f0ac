"""One self-contained HTML page, light or dark: it loads nothing from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hadamard.report.draw.plain_text import escape
from hadamard.report.pages.output import write_page_file

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --paper: #fff; --soft: #5b6470; --line: #e3e6ea;
        --shade: #f6f7f9; --accent: #0072B2; --verdict: #f3f7fa; --alarm: #c1121f;
        --sick: #fdf3f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --paper: #15181d; --soft: #9aa4b0; --line: #343a43; --shade: #1e2229;
          --accent: #56B4E9; --verdict: #1a222b; --alarm: #ff6b6b; --sick: #2b1b1d; }
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
.verdict { border-left: 4px solid var(--accent); background: var(--verdict); padding: .6rem 1rem;
           margin: .8rem 0; }
.verdict.sick { border-color: var(--alarm); background: var(--sick); }
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


def columns_html(columns: Mapping[str, Sequence[str]], css_class: str = "numbers") -> str:
    """Return columns of cells, by their heads, as an HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in zip(*columns.values(), strict=True)
    )
    return (
        f'<div class="scroll"><table class="{css_class}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def terms_html(terms: Mapping[str, str]) -> str:
    """Return terms and their explanations as a list."""
    entries = (f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in terms.items())
    return f"<dl>{''.join(entries)}</dl>"


def write_document(
    path: str | os.PathLike[str], title: str, body: str, style: str = "", policy: str = ""
) -> None:
    """Write a page; ``body`` is HTML, ``style`` is further CSS.

    ``policy`` is the page's Content-Security-Policy.
    """
    if policy:
        policy = f'\n<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
    content = f"""<!doctype html>
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
    write_page_file(path, content)
