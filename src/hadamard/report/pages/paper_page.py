"""The page of one of the paper's figures or tables, with its files, and the index of all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hadamard import __version__
from hadamard.report import compositions
from hadamard.report.compositions import Drawing, counted, spanned
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw.pictures import write_figure
from hadamard.report.measures import number
from hadamard.report.pages.document import inline, write_document
from hadamard.report.pages.tables import Table
from hadamard.report.statistics import claims
from hadamard.report.statistics.claims import Row
from hadamard.report.statistics.decision import Verdict
from hadamard.report.statistics.panel import PanelRuns, steps_words

_STYLE = """
.claims td:nth-child(2), .claims td:last-child, .claims th:nth-child(2), .claims th:last-child,
.words td, .words th { text-align: left; }
.files a { margin-right: 1rem; }
.yes { color: #00745a; } .no { color: var(--alarm); } .open { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1rem; }
.cards a { display: block; border: 1px solid var(--line); border-radius: .4rem; padding: .8rem;
           color: inherit; text-decoration: none; }
.cards .picture { background: #fff; height: 9.5rem; display: flex; align-items: center;
                  justify-content: center; overflow: hidden; }
.cards img { max-width: 100%; max-height: 9.5rem; }
.cards h2 { font-size: 1rem; margin: .6rem 0 .2rem; }
.cards p { margin: .2rem 0; font-size: .88rem; }
.missing { color: var(--soft); font-style: italic; }
"""
_KIND: Mapping[Verdict, str] = {
    "supported": "yes",
    "not supported": "no",
    "undecided": "open",
}


@dataclass(frozen=True)
class Entry:
    """What the index shows of a page."""

    name: str
    place: str
    shows: str
    verdicts: Counter[Verdict]
    drawn: bool
    """Whether there were any runs to draw."""


def write_page(folder: Path, drawing: Drawing, scale: str, commands: Sequence[str]) -> Entry:
    """Write an experiment's figure, tables and page into a folder.

    ``index.html``; ``figure`` as SVG, PNG and PDF; ``numbers`` (the experiment's own table),
    ``claims`` and whatever else the composition has, as CSV and LaTeX; ``curves.csv``, the
    numbers behind the curves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    experiment = drawing.experiment
    judged = claims.rows(experiment, drawing.panels)
    drawn = any(data.tasks for data in drawing.panels.values())
    composed = compositions.compose(drawing)
    picture = write_figure(composed.draw(), folder / "figure", pdf=True)
    tables = list(composed.tables)
    if judged:
        tables.append(claims_table(judged, experiment.place))
    for table in tables:
        if len(table):
            table.write(folder)
    if composed.charts:
        (folder / "curves.csv").write_text(composed.curves_csv(), encoding="utf-8")
    faults = [fault for data in drawing.panels.values() for fault in data.faults(composed.measures)]
    files = ["figure.svg", "figure.png", "figure.pdf"]
    files += [f"{t.name}.{kind}" for t in tables if len(t) for kind in ("csv", "tex")]
    files += ["curves.csv"] if composed.charts else []
    body = [
        f'<p class="meta">{experiment.name} · scale {escape(scale)} · Hadamard {__version__}</p>',
        f"<p>In the paper: {escape(experiment.shows)}.</p>",
        f"<figure>{inline(picture)}<figcaption>{escape(composed.caption)}</figcaption></figure>",
        '<p class="files">' + "".join(f'<a href="{f}">{f}</a>' for f in files) + "</p>",
    ]
    if faults:
        listed = "".join(f"<li>{escape(fault)}</li>" for fault in dict.fromkeys(faults))
        body.append(f'<div class="verdict sick"><h2>Mind this</h2><ul>{listed}</ul></div>')
    is_table = experiment.place.startswith("Table")
    shown = [
        f"<h2>{escape(_title(table))}</h2>{table.html('words')}"
        for table in composed.tables
        if len(table)
    ]
    if is_table:
        body += shown
    if judged:
        body.append("<h2>What the paper claims, and what these runs say</h2>")
        body.append(f"<p>{escape(_protocol(drawing, scale))}</p>{_claims_html(judged)}")
    if not is_table:
        body += shown
    body.append(f"<h2>What was run</h2>{_what_was_run(drawing)}")
    body.append(f"<h2>What the paper leaves open</h2><p>{escape(experiment.note)}</p>")
    lines = "\n".join(commands)
    body.append(f"<h2>The commands</h2><pre>{escape(lines)}</pre>")
    title = f"{experiment.place}, from our runs"
    write_document(folder / "index.html", title, "\n".join(body), _STYLE)
    return Entry(
        experiment.name,
        experiment.place,
        experiment.shows,
        Counter(row.verdict for row in judged),
        drawn,
    )


def write_index(folder: Path, entries: Sequence[Entry], scale: str) -> Path:
    """Write the page that shows every page of a folder, each with its thumbnail."""
    cards = []
    for entry in entries:
        verdicts = ", ".join(f"{entry.verdicts[v]} {v}" for v in _KIND if entry.verdicts[v])
        state = f"<p>{verdicts}</p>" if entry.drawn else '<p class="missing">no runs yet</p>'
        cards.append(
            f'<a href="{entry.name}/index.html"><div class="picture"><img alt="" loading="lazy" '
            f'src="{entry.name}/figure.png"></div><h2>{escape(entry.place)}</h2>'
            f"<p>{escape(entry.shows)}</p>{state}</a>"
        )
    path = folder / "index.html"
    body = (
        f'<p class="meta">{len(entries)} figures and tables · scale {escape(scale)} · '
        f'Hadamard {__version__}</p><div class="cards">{"".join(cards)}</div>'
    )
    write_document(path, "The paper's figures and tables, from our runs", body, _STYLE)
    return path


def claims_table(rows: Sequence[Row], place: str) -> Table:
    """Return claims, ours and verdicts, as a table for files."""
    shown: dict[str, list[str]] = {
        "claim": [row.text for row in rows],
        "in the paper": [_paper(row) for row in rows],
        "ours": [ours_words(row) for row in rows],
        "verdict": [row.verdict for row in rows],
    }
    data: dict[str, list[Any]] = {
        "algorithm": [row.algorithm for row in rows],
        "claim": [row.text for row in rows],
        "kind": [row.kind for row in rows],
        "where": [row.where for row in rows],
        "paper": [row.paper for row in rows],
        "unit": [row.unit for row in rows],
        "ours": [row.ours.value for row in rows],
        "ours_low": [row.ours.low for row in rows],
        "ours_high": [row.ours.high for row in rows],
        "verdict": [row.verdict for row in rows],
        "reason": [row.reason for row in rows],
    }
    return Table("claims", f"{place}: the paper's claims, and what our runs say", shown, data)


def _paper(row: Row) -> str:
    stated = "" if row.paper is None else f"{row.paper:g} {row.unit}, "
    return f"{stated}{row.where}"


def ours_words(row: Row) -> str:
    """Write our number with its interval, in the unit of the claim."""
    value, low, high = row.ours
    if not math.isfinite(value):
        return "–"
    unit = " %" if row.unit.startswith(("%", "percent")) else ""
    if not row.ours.has_interval:
        return f"{number(value)}{unit} (no interval)"
    return f"{number(value)}{unit} ({number(low)} to {number(high)})"


def _claims_html(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("verdict", "claim", "paper", "ours", "why"))
    lines = "".join(
        f'<tr><td class="{_KIND[row.verdict]}"><strong>{row.verdict}</strong></td>'
        f"<td>{escape(row.text)}</td><td>{escape(_paper(row))}</td>"
        f"<td>{escape(ours_words(row))}</td><td>{escape(row.reason)}</td></tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="words claims"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _title(table: Table) -> str:
    return table.caption.partition(": ")[2].capitalize() or table.caption


def _protocol(drawing: Drawing, scale: str) -> str:
    """Say whether verdicts are about the paper's protocol or another one."""
    rule = (
        "Direction: the 95 % interval of the paired difference excludes 0. Size: the interval "
        "contains the paper's number. Equality: it lies inside a margin chosen beforehand."
    )
    if scale == "paper" and all(data.end == data.panel.steps for data in drawing.panels.values()):
        return rule
    return (
        f"{rule} These runs follow another protocol than the paper's (see What was run): a verdict "
        "is about them; signs and orders may be compared with the paper, numbers hardly."
    )


def _what_was_run(drawing: Drawing) -> str:
    published = {panel.algorithm: panel for panel in drawing.experiment.panels}
    shown: dict[str, list[str]] = {}
    for algorithm, data in drawing.panels.items():
        paper = published[algorithm]
        runs = [run for tasks in data.complete.values() for of in tasks.values() for run in of]
        cells = {
            "algorithm": algorithm_name(algorithm),
            "tasks": _tasks(data),
            "arms": ", ".join(data.shown) or "none",
            "seeds": spanned(*data.seeds()),
            "budget": data.budget_words,
            "the paper": f"{counted(len(paper.tasks), 'task')}, {counted(paper.seeds, 'seed')}, "
            f"{steps_words(paper.steps)} steps",
            "machine": ", ".join(dict.fromkeys(run.machine for run in runs if run.machine)),
            "commit": ", ".join(dict.fromkeys((run.commit or "–")[:9] for run in runs)),
        }
        for name, text in cells.items():
            shown.setdefault(name, []).append(text)
    return Table("runs", "", shown, shown).html("words")


def _tasks(data: PanelRuns) -> str:
    if not data.tasks:
        return "none"
    if len(data.tasks) <= 8:
        return ", ".join(data.tasks)
    suites = dict.fromkeys(task.partition("/")[0] for task in data.tasks)
    return f"{len(data.tasks)} tasks of {' and '.join(suites)}"
