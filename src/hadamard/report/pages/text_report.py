"""The comparison of runs as plain text: findings and final numbers. Needs no figures' packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, sections
from hadamard.report.pages.caveats import unreadable_parts
from hadamard.report.pages.final_numbers import final_numbers
from hadamard.report.pages.findings import findings
from hadamard.report.pages.plain_runs import plain_runs, plain_sentences
from hadamard.text import counted


def text_report(runs: Sequence[RunData], problems: Sequence[str] = ()) -> str:
    """Return what the numbers say and the numbers at the end, section by section.

    ``problems`` are sentences about runs that could not be read.
    """
    runs = plain_runs(runs)
    finished = sum(run.finished for run in runs)
    some = "all" if finished == len(runs) else f"{finished:,}"
    lines = [f"{counted(len(runs), 'run')}, {some} finished"]
    lines += plain_sentences(list(problems))
    lines += unreadable_parts(runs)
    return "\n\n".join(["\n".join(lines), *(_section(section) for section in sections(runs))])


def _section(section: Section) -> str:
    lines = [section.name, "-" * len(section.name)]
    for finding in findings(section):
        lines += [finding.headline, *(f"  {detail}" for detail in finding.details)]
    cells, caption = final_numbers(section)
    return "\n".join([*lines, "", *aligned(cells), caption])


def aligned(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of a table, the first column at the left and numbers at the right.

    Examples:
        >>> print("\\n".join(aligned({"variant": ["tanh", "tanh + HR"], "score": ["2.5", "10"]})))
        variant    score
        tanh         2.5
        tanh + HR     10
    """
    names, *numbers = ([head, *cells] for head, cells in columns.items())
    widths = [max(map(len, column)) for column in (names, *numbers)]
    rows = zip(names, *numbers, strict=True)
    return [
        "  ".join(
            [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])],
        ).rstrip()
        for first, *others in rows
    ]
