"""The evidence page, as Markdown, and the figures that it shows."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hadamard.core.files import write_atomically
from hadamard.experiments.evidence.backing import Backed, every_entry, read
from hadamard.experiments.evidence.costs import SCALE, Costs, Remaining, read_costs, remaining
from hadamard.experiments.evidence.rows import NOT_RUN, Row, rows, tasks_words
from hadamard.experiments.paper import EXPERIMENTS, SCALES, STATEMENTS, Panel
from hadamard.report.compositions import Drawing
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.pages.left_out import listed
from hadamard.report.pages.paper_page import RULE, write_page
from hadamard.text import count_range, counted, duration, steps_words

Runs = Mapping[str, Sequence[RunData]]

PAGE = "evidence.md"
FIGURES = "evidence"
"""The folder of the figures, beside the page."""
COSTS = Path("evidence") / "costs.json"
_VERDICTS = ("supported", "not supported", "undecided", NOT_RUN)
_INTRODUCTION = (
    "Which of the paper's claims the runs in `results/` support, contradict or leave open. `make "
    "evidence` writes this page and its figures from those [packed runs]"
    "(reproduce.md#packed-runs), and a test keeps it in step: no number of ours is typed. A claim "
    "is judged on all the tasks that its variants share, and a row is about the runs that it names."
)


def write_evidence(
    results: Path, docs: Path, surprises: Callable[[Runs], str] | None = None
) -> Path:
    """Write the page and draw every figure and table with enough runs; return the page.

    Args:
        results: The folder with a folder of packed runs for each scale.
        docs: The documentation's folder.
        surprises: Returns a section that is put in, given the runs of every scale.
    """
    runs = read(results)
    entries = every_entry(runs)
    for scale in SCALES:  # what is no longer backed is removed
        shutil.rmtree(docs / FIGURES / scale, ignore_errors=True)
    for entry in filter(lambda entry: entry.enough, entries):
        drawing = Drawing(entry.experiment, entry.panels, entry.experiment.shading)
        folder = docs / FIGURES / entry.scale / entry.experiment.name
        commands = [*entry.commands(), "make evidence"]
        write_page(folder, drawing, entry.scale_in_words, commands, small=True)
    page = docs / PAGE
    section = surprises(runs) if surprises is not None else ""
    text = evidence_page(runs, entries, read_costs(docs / COSTS), section)
    write_atomically(page, text.encode())
    return page


def evidence_page(runs: Runs, entries: Sequence[Backed], costs: Costs, surprises: str) -> str:
    """Return the page as Markdown."""
    by_algorithm = _most_decided_first(rows(entries))
    parts = ["# Evidence", _INTRODUCTION, RULE, _summary(by_algorithm)]
    for algorithm, of_algorithm in by_algorithm.items():
        parts += _section(algorithm, of_algorithm, entries)
    if surprises:
        parts.append(surprises)
    return "\n\n".join([*parts, *_statements(), *_outlook(runs, entries, costs)]) + "\n"


def _most_decided_first(every_row: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows by algorithm; an algorithm of which more claims are decided comes earlier."""
    by_algorithm: dict[str, list[Row]] = {}
    for row in every_row:
        by_algorithm.setdefault(row.algorithm, []).append(row)

    def decided(algorithm: str) -> tuple[int, int]:
        count = Counter(row.verdict for row in by_algorithm[algorithm])
        return count["supported"] + count["not supported"], count["undecided"]

    return {name: by_algorithm[name] for name in sorted(by_algorithm, key=decided, reverse=True)}


def _summary(by_algorithm: Mapping[str, Sequence[Row]]) -> str:
    lines = []
    for algorithm, of_algorithm in by_algorithm.items():
        count = Counter(row.verdict for row in of_algorithm)
        name = algorithm_name(algorithm)
        anchor = name.lower().replace(".", "")
        lines.append([f"[{name}](#{anchor})", *(str(count[verdict]) for verdict in _VERDICTS)])
    return _table(["claims on", *_VERDICTS], lines)


def _section(algorithm: str, of_algorithm: Sequence[Row], entries: Sequence[Backed]) -> list[str]:
    parts = [f"## {algorithm_name(algorithm)}", _papers_runs(algorithm)]
    parts += _our_runs(algorithm, entries)
    measured = [row for row in of_algorithm if row.verdict != NOT_RUN]
    if measured:
        heads = ["verdict", "claim", "the paper", "ours (95 % interval)", "runs", "why"]
        cells = [[f"**{r.verdict}**", r.claim, r.paper, r.ours, r.runs, r.why] for r in measured]
        parts.append(_table(heads, cells))
    if others := [row for row in of_algorithm if row.verdict == NOT_RUN]:
        parts.append("Of these claims nothing was run:")
        cells = [[row.claim, row.paper, row.why] for row in others]
        parts.append(_table(["claim", "the paper", "it needs runs of"], cells))
    return parts + [
        _figure(entry) for entry in entries if entry.enough and set(entry.panels) == {algorithm}
    ]


def _papers_runs(algorithm: str) -> str:
    panels = [p for e in EXPERIMENTS.values() for p in e.panels if p.algorithm == algorithm]
    described = dict.fromkeys(_panel_words(panel) for panel in panels)
    return f"In the paper: {'; '.join(described)}."


def _panel_words(panel: Panel) -> str:
    tasks, seeds = tasks_words(panel.tasks), counted(panel.seeds, "seed")
    return f"{tasks}, {seeds}, {steps_words(panel.steps)} steps"


def _our_runs(algorithm: str, entries: Sequence[Backed]) -> list[str]:
    """Return what was run: for each scale, the fewest figures and tables that have all of it."""
    items, listed_runs = [], set[Path]()
    of_algorithm = [entry for entry in entries if entry.runs(algorithm)]
    for entry in sorted(of_algorithm, key=lambda entry: -len(entry.runs(algorithm))):
        runs, data = entry.runs(algorithm), entry.panels[algorithm]
        if {run.path for run in runs} <= listed_runs:
            continue
        listed_runs |= {run.path for run in runs}
        machines = listed(dict.fromkeys(run.machine for run in runs))
        commits = listed(dict.fromkeys((run.commit or "–")[:9] for run in runs))
        items.append(
            f"- `{entry.scale}`, {tasks_words(data.tasks)}, {count_range(data.seeds(), 'seed')}, "
            f"{data.budget_words}: {'; '.join(data.shown_labels)}. {machines}, commit {commits}: "
            f"`{entry.command(algorithm)}`"
        )
    return ["\n".join(["Here:", "", *items])] if items else []


def _figure(entry: Backed) -> str:
    experiment = entry.experiment
    folder = f"{FIGURES}/{entry.scale}/{experiment.name}"
    where = f"{experiment.place}, from our runs ({entry.scale_in_words})"
    return (
        f"![{where}]({folder}/figure.png)\n\n*{where}. In the paper: {experiment.shows}. "
        f"[Numbers, claims, caveats]({folder}/index.html).*"
    )


def _statements() -> list[str]:
    cells = [
        [s.text, s.where, " ".join([s.instead, *(f"`{test}`" for test in s.tests)])]
        for s in STATEMENTS
    ]
    return ["## What no run decides", _table(["statement", "the paper", "instead"], cells)]


def _outlook(runs: Runs, entries: Sequence[Backed], costs: Costs) -> list[str]:
    """Return the sections of every figure and table: what was run, what was not, the cost."""
    cells, total, unknown = [], 0.0, 0
    for experiment in EXPERIMENTS.values():
        left = remaining(experiment, runs.get(SCALE, ()), costs)
        total, unknown = total + left.seconds, unknown + left.unknown
        links = [
            f"[{entry.scale_in_words}]({FIGURES}/{entry.scale}/{experiment.name}/index.html)"
            for entry in entries
            if entry.experiment is experiment and entry.enough
        ]
        cells.append(
            [
                experiment.place,
                ", ".join(links) or "nothing",
                f"{left.runs - left.unfinished:,} of {left.runs:,}",
                _cost_words(left),
                f"`hadamard reproduce {experiment.name} --scale {SCALE}`",
            ]
        )
    heads = ["figure or table", "drawn from", "whole runs at the paper's scale", "the rest takes",
             "command"]  # fmt: skip
    busy = ", while other programs ran there, so an idle one takes less" if costs.busy else ""
    introduction = (
        "Every figure and table of the paper that shows runs, the scales at which it is drawn "
        "here, and what is left at the paper's own scale. The time is of the runs that are left, "
        f"one after another, estimated from seconds of training on one machine ({costs.machine}, "
        f"{costs.date}{busy}); experiments share runs, so the times do not add up. "
        "`--dry-run` estimates it on yours."
    )
    return ["## What was run, and what was not", introduction, _table(heads, cells)]


def _cost_words(left: Remaining) -> str:
    if not left.unfinished:
        return "nothing is left"
    unknown = f"{counted(left.unknown, 'run')} of unknown cost" if left.unknown else ""
    if left.unknown == left.unfinished:
        return unknown
    days = left.seconds / 86_400
    words = f"{days:,.0f} days" if days >= 3 else duration(left.seconds)
    return f"{words}, and {unknown}" if unknown else words


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    every = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in every)
