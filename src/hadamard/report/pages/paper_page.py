"""The page of one of the paper's figures or tables, its files, and the index of all pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hadamard import __version__
from hadamard.core.files import write_atomically
from hadamard.report import compositions
from hadamard.report.compositions import Drawing
from hadamard.report.data.labels import algorithm_name
from hadamard.report.draw.pictures import write_figure, write_png
from hadamard.report.draw.plain_text import escape, plain
from hadamard.report.draw.svg import inline_svg
from hadamard.report.pages.document import write_document
from hadamard.report.pages.left_out import Omissions, listed
from hadamard.report.pages.output import make_output_folder
from hadamard.report.pages.tables import Table, estimate_text
from hadamard.report.statistics.claims import JudgedClaim, judge_claims
from hadamard.report.statistics.judgement import Verdict
from hadamard.report.statistics.panel import PanelRuns
from hadamard.text import count_range, counted, steps_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hadamard.experiments.paper import Experiment

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
RULE = (
    "A direction is supported if the 95 % interval of the paired difference lies on the claimed "
    "side of 0, a size if the interval contains the paper's number, an equality if the interval "
    "lies inside a margin chosen beforehand. Each of them is not supported if the interval lies "
    "where the claim cannot be true, and undecided otherwise."
)
_VERDICT_CLASSES: Mapping[Verdict, str] = {
    "supported": "yes",
    "not supported": "no",
    "undecided": "open",
}


@dataclass(frozen=True)
class Entry:
    """The entry of a page in the index."""

    name: str
    place: str
    shows: str
    verdicts: Counter[Verdict]
    has_runs: bool
    """Whether there were any runs to draw."""


def write_page(
    folder: Path, drawing: Drawing, scale: str, commands: Sequence[str], *, small: bool = False
) -> Entry:
    """Write an experiment's page, figure and tables into a folder.

    The page is ``index.html``. ``figure`` is written as SVG, PNG and PDF; the tables ``numbers``
    (the experiment's own), ``claims`` and further ones of the composition as CSV and LaTeX;
    ``curves.csv`` has the numbers behind the curves. If ``small``, figures are PNG alone and tables
    CSV alone, without the curves: for pages that are kept in a repository.
    """
    folder = make_output_folder(folder)
    omissions = Omissions()
    experiment = drawing.experiment
    judged = judge_claims(experiment, drawing.panels)
    composed = compositions.compose(drawing)
    figure_html = omissions.attempt(
        "The figure", lambda: _figure_html(composed.draw(), folder, small=small)
    )
    tables = list(composed.tables)
    if judged:
        tables.append(claims_table(judged, experiment.place))
    tables = [table for table in tables if len(table)]
    formats = ("csv",) if small else ("csv", "tex")
    for table in tables:
        table.write(folder, formats)
    figures = ["figure.png"] if small else ["figure.svg", "figure.png", "figure.pdf"]
    files = [] if omissions.sentences else figures
    files += [f"{table.name}.{suffix}" for table in tables for suffix in formats]
    if composed.charts and not small:
        write_atomically(folder / "curves.csv", composed.curves_csv())
        files.append("curves.csv")
    body = [
        f'<p class="meta">{experiment.name} · scale {escape(scale)} · Hadamard {__version__}</p>',
        f"<p>{_opening(experiment)}</p>",
        f"<figure>{figure_html}<figcaption>{escape(composed.caption)}</figcaption></figure>",
        '<p class="files">' + "".join(f'<a href="{file}">{file}</a>' for file in files) + "</p>",
    ]
    caveats = [text for data in drawing.panels.values() for text in data.caveats(composed.measures)]
    if caveats:
        items = "".join(f"<li>{escape(caveat)}</li>" for caveat in dict.fromkeys(caveats))
        body.append(f'<div class="verdict sick"><h2>Caveats</h2><ul>{items}</ul></div>')
    is_table = experiment.place.startswith("Table")
    tables_html = [
        f"<h2>{escape(_table_title(table))}</h2>{table.html('words')}"
        for table in composed.tables
        if len(table)
    ]
    if is_table:
        body += tables_html
    if judged:
        body.append("<h2>What the paper claims, and what these runs say</h2>")
        body.append(f"<p>{escape(_rule(drawing, scale))}</p>{_claims_html(judged)}")
    if not is_table:
        body += tables_html
    body.append(f"<h2>What was run</h2>{_what_was_run(drawing)}")
    choices = "What was chosen" if experiment.ours else "What the paper leaves open"
    body.append(f"<h2>{choices}</h2><p>{escape(experiment.note)}</p>")
    lines = "\n".join(commands)
    body.append(f"<h2>The commands</h2><pre>{escape(lines)}</pre>")
    title = f"{experiment.place}, from our runs"
    write_document(folder / "index.html", title, "\n".join(body), _STYLE)
    return Entry(
        experiment.name,
        experiment.place,
        experiment.shows,
        Counter(claim.verdict for claim in judged),
        any(data.tasks for data in drawing.panels.values()),
    )


def _opening(experiment: Experiment) -> str:
    """Return the first sentence of a page."""
    if experiment.ours:
        return f"Beyond the paper: {escape(experiment.shows)}"
    return f"In the paper: {escape(experiment.shows)}."


def _figure_html(figure: Figure, folder: Path, *, small: bool) -> str:
    if not small:
        return inline_svg(write_figure(figure, folder / "figure", pdf=True))
    write_png(figure, folder / "figure.png")
    return '<img alt="" src="figure.png" style="max-width: 100%">'


def write_index(folder: Path, entries: Sequence[Entry], scale: str) -> Path:
    """Write the page that links to the pages of all entries, each with a thumbnail."""
    cards = []
    for entry in entries:
        verdicts = ", ".join(
            f"{entry.verdicts[v]} {v}" for v in _VERDICT_CLASSES if entry.verdicts[v]
        )
        state = f"<p>{verdicts}</p>" if entry.has_runs else '<p class="missing">no runs yet</p>'
        cards.append(
            f'<a href="{entry.name}/index.html"><div class="picture"><img alt="" loading="lazy" '
            f'src="{entry.name}/figure.png"></div><h2>{escape(entry.place)}</h2>'
            f"<p>{escape(entry.shows)}</p>{state}</a>"
        )
    path = make_output_folder(folder) / "index.html"
    body = (
        f'<p class="meta">{len(entries)} figures and tables · scale {escape(scale)} · '
        f'Hadamard {__version__}</p><div class="cards">{"".join(cards)}</div>'
    )
    write_document(path, "The paper's figures and tables, from our runs", body, _STYLE)
    return path


def claims_table(claims: Sequence[JudgedClaim], place: str) -> Table:
    """Return the claims with our numbers and the verdicts."""
    text_columns: dict[str, list[str]] = {
        "claim": [claim.text for claim in claims],
        "in the paper": [_paper_text(claim) for claim in claims],
        "ours": [our_text(claim) for claim in claims],
        "verdict": [claim.verdict for claim in claims],
    }
    data: dict[str, list[Any]] = {
        "algorithm": [claim.algorithm for claim in claims],
        "claim": [claim.text for claim in claims],
        "kind": [claim.kind for claim in claims],
        "where": [claim.where for claim in claims],
        "paper": [claim.paper for claim in claims],
        "unit": [claim.unit for claim in claims],
        "ours": [claim.ours.value for claim in claims],
        "ours_low": [claim.ours.low for claim in claims],
        "ours_high": [claim.ours.high for claim in claims],
        "verdict": [claim.verdict for claim in claims],
        "reason": [claim.reason for claim in claims],
    }
    return Table(
        "claims", f"{place}: the paper's claims, and what our runs say", text_columns, data
    )


def _paper_text(claim: JudgedClaim) -> str:
    stated = "" if claim.paper is None else f"{claim.paper:g} {claim.unit}, "
    return f"{stated}{claim.where}"


def our_text(claim: JudgedClaim) -> str:
    """Return our number with its interval, in the unit of the claim."""
    unit = " %" if claim.unit.startswith(("%", "percent")) else ""
    return estimate_text(claim.ours, unit=unit, no_interval=" (no interval)")


def _claims_html(claims: Sequence[JudgedClaim]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("verdict", "claim", "paper", "ours", "why"))
    lines = "".join(
        f'<tr><td class="{_VERDICT_CLASSES[claim.verdict]}"><strong>{claim.verdict}</strong></td>'
        f"<td>{escape(claim.text)}</td><td>{escape(_paper_text(claim))}</td>"
        f"<td>{escape(our_text(claim))}</td><td>{escape(claim.reason)}</td></tr>"
        for claim in claims
    )
    return (
        f'<div class="scroll"><table class="words claims"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _table_title(table: Table) -> str:
    return table.caption.partition(": ")[2].capitalize() or table.caption


def _rule(drawing: Drawing, scale: str) -> str:
    """Return the rule for verdicts, with a warning if the runs follow another protocol."""
    if scale == "paper" and all(data.end == data.panel.steps for data in drawing.panels.values()):
        return RULE
    return (
        f"{RULE} These runs follow another protocol than the paper's (see What was run), and the "
        "verdicts are about these runs: signs and orders may be compared with the paper, sizes "
        "less so."
    )


def _what_was_run(drawing: Drawing) -> str:
    paper_panels = {panel.algorithm: panel for panel in drawing.experiment.panels}
    in_full = "in full" if drawing.experiment.ours else "the paper"
    text_columns: dict[str, list[str]] = {}
    for algorithm, data in drawing.panels.items():
        paper = paper_panels[algorithm]
        runs = [run for tasks in data.complete.values() for runs in tasks.values() for run in runs]
        cells = {
            "algorithm": algorithm_name(algorithm),
            "tasks": _tasks_text(data),
            "arms": ", ".join(data.shown_labels) or "none",
            "seeds": count_range(data.seeds(), "seed"),
            "budget": data.budget_words,
            in_full: f"{counted(len(paper.tasks), 'task')}, {counted(paper.seeds, 'seed')}, "
            f"{steps_words(paper.steps)} steps",
            "machine": listed(dict.fromkeys(plain(run.machine) for run in runs if run.machine)),
            "commit": listed(dict.fromkeys(plain((run.commit or "–")[:9]) for run in runs)),
        }
        for name, text in cells.items():
            text_columns.setdefault(name, []).append(text)
    return Table("runs", "", text_columns, text_columns).html("words")


def _tasks_text(data: PanelRuns) -> str:
    if not data.tasks:
        return "none"
    if len(data.tasks) <= 8:
        return ", ".join(data.tasks)
    suites = dict.fromkeys(task.partition("/")[0] for task in data.tasks)
    return f"{len(data.tasks)} tasks of {' and '.join(suites)}"
