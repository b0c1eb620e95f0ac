"""The display of a sweep: a live table on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.outcome import failed_outcome
from hadamard.experiments.sweep.status import Progress, run_progress
from hadamard.text import counted, duration
from hadamard.training.progress import describe

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_TABLES = 0.5


class JobStatus(NamedTuple):
    """A job's state in a sweep, and the number of its attempt."""

    state: str
    """One of running, failed, interrupted, finished and waiting."""
    attempt: int = 0
    """0 if it is unknown."""


class Viewed(Protocol):
    """What a view reads: jobs, and the status of each."""

    jobs: list[Job]

    def status(self, job: Job) -> JobStatus:
        """Return the status of a job."""


Show = Callable[[], None]
View = Callable[[Any], AbstractContextManager[Show]]
"""Shows a sweep in a context, whose function is called several times a second."""


def folder_name(job: Job) -> str:
    """Return a job's default label."""
    return job.name


@contextmanager
def live_view(sweep: Viewed, label: Callable[[Job], str] = folder_name) -> Iterator[Show]:
    """Show a live table on a terminal, and plain lines elsewhere."""
    if not sys.stdout.isatty():
        yield Lines(sweep, label).print_news
        return
    from rich.console import Console
    from rich.live import Live

    console, start, last = Console(), time.monotonic(), [0.0]

    def current_table() -> Any:
        return table(sweep, label, time.monotonic() - start, console.width, console.height)

    with Live(current_table(), console=console, auto_refresh=False) as live:

        def show() -> None:
            if time.monotonic() - last[0] >= SECONDS_BETWEEN_TABLES:
                last[0] = time.monotonic()
                live.update(current_table(), refresh=True)

        yield show
        live.update(current_table(), refresh=True)


class Lines:
    """Prints a line when a job's status changes, and one for each running job every 30 seconds."""

    def __init__(self, sweep: Viewed, label: Callable[[Job], str] = folder_name) -> None:
        self.sweep, self.label = sweep, label
        self.last = time.monotonic()
        self.printed: dict[Path, JobStatus] = {job.path: sweep.status(job) for job in sweep.jobs}
        finished = sum(status.state == "finished" for status in self.printed.values())
        already = f", {finished:,} already finished" if finished else ""
        print(f"{counted(len(sweep.jobs), 'run')}{already}", flush=True)

    def print_news(self) -> None:
        """Print the changes since the last call."""
        repeat = time.monotonic() - self.last >= SECONDS_BETWEEN_LINES
        if repeat:
            self.last = time.monotonic()
        for job in self.sweep.jobs:
            status = self.sweep.status(job)
            if status != self.printed[job.path]:
                self.printed[job.path] = status
                attempt = f" (attempt {status.attempt})" if status.attempt > 1 else ""
                parts = [f"{status.state}{attempt}"]
                if status.state == "finished":
                    parts.append(describe(vars(run_progress(job.path))))
                elif status.state == "failed":
                    parts += failed_outcome(job).printable_log[-1:]
            elif repeat and status.state == "running":
                parts = _progress_parts(run_progress(job.path), job.spec.train.horizon)
            else:
                continue
            print(f"{self.label(job)}: {' · '.join(filter(None, parts))}", flush=True)


def _progress_parts(progress: Progress, steps: int) -> list[str]:
    parts = [f"{progress.step:,}/{steps:,} steps"]
    if progress.rate:
        parts.append(f"{progress.rate:,.0f}/s")
    parts.append(describe(vars(progress)))
    left = progress.seconds_left(steps)
    if left is not None:
        parts.append(f"{duration(left)} left")
    return parts


@dataclass(frozen=True)
class _Row:
    """A job in the table."""

    job: Job
    status: JobStatus
    progress: Progress

    @property
    def steps(self) -> int:
        return self.job.spec.train.horizon

    @property
    def rate(self) -> float | None:
        return self.progress.rate if self.status.state == "running" else None

    @property
    def seconds_left(self) -> float | None:
        return self.progress.seconds_left(self.steps) if self.rate else None


_BAR_WIDTH = 12


def _bar(row: _Row) -> Any:
    from rich.progress_bar import ProgressBar

    step = min(row.progress.step, row.steps)
    return ProgressBar(total=row.steps, completed=step, width=_BAR_WIDTH) if step else ""


def _state(row: _Row) -> str:
    state, attempt = row.status
    return f"{state} ({attempt})" if attempt > 1 else state


def _rank(row: _Row) -> str:
    return "" if row.progress.rank is None else f"{row.progress.rank}/{row.progress.full_rank}"


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


class Column(NamedTuple):
    """A column of the table."""

    cell: Callable[[_Row], Any]
    justify: Literal["left", "right"] = "right"


COLUMNS = {
    "state": Column(_state, "left"),
    "progress": Column(_bar, "left"),
    "step": Column(lambda row: f"{row.progress.step:,}" if row.progress.step else ""),
    "steps/s": Column(lambda row: _optional(row.rate or None, ",.0f")),
    "score": Column(lambda row: _optional(row.progress.score, ".1f")),
    "dormant": Column(lambda row: _optional(row.progress.dormant, ".1%")),
    "rank": Column(_rank),
    "left": Column(lambda row: "" if row.seconds_left is None else duration(row.seconds_left)),
}
"""The columns behind the label, by their headings."""
_LEFT_OUT = ("step", "steps/s", "left", "rank", "dormant")
"""Columns that are left out on narrow terminals, in this order."""
_LABEL_WIDTH = 36
"""Columns are left out until this many characters of a long label fit."""
_STYLES = {
    "running": "bold",
    "failed": "bold red",
    "interrupted": "yellow",
    "finished": "green",
    "waiting": "dim",
}
"""The states in the order of the table's rows, with their print styles."""
_TITLE_ORDER = ("finished", "waiting", "running", "failed", "interrupted")


def table(
    sweep: Viewed, label: Callable[[Job], str], seconds: float, width: int, height: int
) -> Any:
    """Return the jobs as a table that fits the terminal, running ones first.

    Args:
        sweep: The jobs and their states.
        label: Returns a job's label.
        seconds: How long the sweep has run.
        width: Columns of the terminal.
        height: Lines of the terminal.
    """
    from rich import box
    from rich.table import Table

    rows = [_Row(job, sweep.status(job), run_progress(job.path)) for job in sweep.jobs]
    rows.sort(key=lambda row: list(_STYLES).index(row.status.state))
    shown = rows[: max(height - 8, 1)]  # the other lines are the title, heading and margins
    labels = [label(row.job) for row in shown]
    longest = max(map(len, labels))
    room = width - 2  # for the spaces at both edges
    columns = _columns_that_fit(shown, room - min(_LABEL_WIDTH, longest))
    hidden = Counter(row.status.state for row in rows[len(shown) :])
    hidden_counts = ", ".join(f"{count:,} more {state}" for state, count in hidden.items())
    content = Table(
        title=_title(rows, seconds),
        title_justify="left",
        title_style="",
        caption=f" and {hidden_counts}" if hidden_counts else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    label_width = min(longest, room - sum(column.width + 2 for column in columns))
    content.add_column("run", no_wrap=True, width=label_width)
    for column in columns:
        justify = COLUMNS[column.heading].justify
        content.add_column(column.heading, justify=justify, no_wrap=True, width=column.width)
    for i, row in enumerate(shown):
        cells = (column.cells[i] for column in columns)
        content.add_row(_shortened(labels[i], label_width), *cells, style=_STYLES[row.status.state])
    return content


def _shortened(label: str, width: int) -> str:
    """Return the end of a label, which names the variant and the seed."""
    return label if len(label) <= width else f"…{label[-(width - 1) :]}"


class _FilledColumn(NamedTuple):
    heading: str
    cells: list[Any]
    width: int


def _columns_that_fit(rows: Sequence[_Row], width: int) -> list[_FilledColumn]:
    """Return the columns that have a value in any row and fit into the width."""
    columns = []
    for heading, column in COLUMNS.items():
        cells = [column.cell(row) for row in rows]
        widths = [len(cell) if isinstance(cell, str) else _BAR_WIDTH for cell in cells]
        if any(widths):
            columns.append(_FilledColumn(heading, cells, max(len(heading), *widths)))
    for heading in _LEFT_OUT:
        if sum(column.width + 2 for column in columns) > width:
            columns = [column for column in columns if column.heading != heading]
    return columns


def _title(rows: Sequence[_Row], seconds: float) -> str:
    """Return the number of runs in each state, the time so far and the time left."""
    counts = Counter(row.status.state for row in rows)
    parts = [f"{counts[state]:,} {state}" for state in _TITLE_ORDER if counts[state]]
    parts.append(f"{duration(seconds)} so far")
    left = _seconds_left(rows)
    if left is not None:
        parts.append(f"about {duration(left)} left")
    return " · ".join(parts)


def _seconds_left(rows: Sequence[_Row]) -> float | None:
    """Estimate the time to the end of all runs, at the summed rate of the running ones."""
    rate = sum(row.rate or 0.0 for row in rows)
    if not rate:
        return None
    steps = 0
    for row in rows:
        if row.status.state == "running":
            steps += max(row.steps - row.progress.step, 0)
        elif row.status.state == "waiting":
            steps += row.steps
    return steps / rate
