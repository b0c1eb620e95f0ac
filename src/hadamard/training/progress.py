"""Progress of a training run: a live bar on a terminal, plain lines in a file."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from hadamard.text import counted, duration

_TERMINAL = threading.Lock()
"""Held by the live bar: a terminal has room for one."""
_TITLES = 4
"""Runs that a shared display names."""


class Progress(Protocol):
    """Shows the progress of a run."""

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Show the step, and the facts (score, health) known so far."""

    def close(self) -> None:
        """Finish."""


def describe(facts: dict[str, Any]) -> str:
    """Return the known facts as text.

    Examples:
        >>> describe({"score": 12.34, "dormant": 0.25, "rank": 40, "full_rank": 128})
        'score 12.3 · dormant 25.0% · rank 40/128'
    """
    parts = []
    if facts.get("score") is not None:
        parts.append(f"score {facts['score']:.1f}")
    if facts.get("greedy") is not None:
        parts.append(f"greedy {facts['greedy']:.1f}")
    if facts.get("dormant") is not None:
        parts.append(f"dormant {facts['dormant']:.1%}")
        parts.append(f"rank {facts['rank']}/{facts['full_rank']}")
    return " · ".join(parts)


class PlainLines:
    """Prints a line every few seconds, for logs."""

    def __init__(self, title: str, total: int, done: int = 0, every: float = 10.0) -> None:
        self.total, self.first_step, self.every = total, done, every
        self.start_time = self.last_time = time.monotonic()
        self.finished = False
        print(title, flush=True)

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Print a line if the last one is old enough, and once at the end."""
        now = time.monotonic()
        finished = step >= self.total
        if self.finished or (now - self.last_time < self.every and not finished):
            return
        self.last_time, self.finished = now, finished
        rate = (step - self.first_step) / max(now - self.start_time, 1e-9)
        words = [f"{step:,}/{self.total:,} steps", f"{rate:,.0f} steps/s"]
        if description := describe(facts):  # empty before the first episode has ended
            words.append(description)
        if not finished:
            words.append(f"{duration((self.total - step) / max(rate, 1e-9))} left")
        print(" · ".join(words), flush=True)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class LiveBar:
    """A progress bar on a terminal, with speed, score and health.

    ``closed`` is called at its end.
    """

    def __init__(
        self, title: str, total: int, done: int = 0, closed: Callable[[], None] = lambda: None
    ) -> None:
        from rich.columns import Columns
        from rich.console import Console, RenderableType
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        class BarAndRuns(Bar):
            """The bar, and below it a few words on each of several runs."""

            runs: Sequence[str] = ()

            def get_renderables(self) -> Iterator[RenderableType]:
                yield from super().get_renderables()
                if self.runs:
                    yield Columns(self.runs, padding=(0, 3))

        self.console = Console()
        self.console.print(title, highlight=False)
        self.bar = BarAndRuns(
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self.bar.start()
        self.task = self.bar.add_task(
            "train", total=total, completed=done, rate="", facts="starting"
        )
        self.last_time, self.last_step = time.monotonic(), done
        self.rate, self.total = "", total
        self.closed = closed

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Move the bar, at most five times a second, and at the end."""
        now = time.monotonic()
        seconds = now - self.last_time
        if seconds >= 0.2:  # over a shorter time, the speed would be noise
            self.rate = f"{(step - self.last_step) / seconds:,.0f} steps/s"
            self.last_time, self.last_step = now, step
        elif step < self.total:
            return
        self.bar.update(self.task, completed=step, rate=self.rate, facts=describe(facts))

    def show_runs(self, runs: Sequence[str]) -> None:
        """Show a few words on each of several runs, from the next update on."""
        self.bar.runs = runs

    def close(self) -> None:
        """Stop updating; the bar stays on the screen."""
        self.bar.stop()
        closed, self.closed = self.closed, lambda: None
        closed()


class SharedProgress:
    """One display for several runs: the sum of their steps and the means of their facts.

    Call it once for each run, as one would ``make_progress``; each call returns that run's
    ``Progress``.
    """

    def __init__(self, make: Callable[[str, int, int], Progress], num_runs: int) -> None:
        self.make, self.num_runs = make, num_runs
        self.titles: list[str] = []
        self.steps: list[int] = []
        self.facts: list[dict[str, Any]] = []
        self.running: list[bool] = []
        self.total = 0
        self.display: Progress | None = None
        self._shown = 0.0

    def __call__(self, title: str, total: int, done: int = 0) -> Progress:
        """Add a run; the last one opens the display."""
        self.titles.append(title)
        self.steps.append(done)
        self.facts.append({})
        self.running.append(True)
        self.total += total
        if len(self.titles) == self.num_runs:
            titles, rest = self.titles[:_TITLES], len(self.titles) - _TITLES
            titles += [f"... and {counted(rest, 'run')} more"] if rest > 0 else []
            self.display = self.make("\n".join(titles), self.total, sum(self.steps))
        return _RunProgress(self, len(self.titles) - 1)

    def update(self) -> None:
        """Show the current state of all runs, at most ten times a second, and at the end."""
        now = time.monotonic()
        if now - self._shown < 0.1 and sum(self.steps) < self.total:
            return
        self._shown = now
        if isinstance(self.display, LiveBar):
            self.display.show_runs(_each(self.facts))
        if self.display is not None:
            self.display.update(sum(self.steps), _means(self.facts))

    def close(self, run: int) -> None:
        """Close a run; the last one closes the display."""
        self.running[run] = False
        if self.display is not None and not any(self.running):
            self.display.close()


class _RunProgress:
    """The progress of one run, shown on a display that several runs share."""

    def __init__(self, shared: SharedProgress, run: int) -> None:
        self.shared, self.run = shared, run

    def update(self, step: int, facts: dict[str, Any]) -> None:
        self.shared.steps[self.run], self.shared.facts[self.run] = step, dict(facts)
        self.shared.update()

    def close(self) -> None:
        self.shared.close(self.run)


def _each(facts: Sequence[dict[str, Any]]) -> list[str]:
    """Return each run's score and dormant share, as far as they are known.

    Examples:
        >>> _each([{"score": 1.0, "dormant": 0.25}, {"score": 12.34}, {}])
        ['run 1: 1.0, 25% dormant', 'run 2: 12.3', 'run 3: -']
    """
    lines = []
    for number, known in enumerate(facts, start=1):
        words = [f"{known['score']:.1f}"] if known.get("score") is not None else []
        words += [f"{known['dormant']:.0%} dormant"] if known.get("dormant") is not None else []
        lines.append(f"run {number}: {', '.join(words) or '-'}")
    return lines


def _means(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each fact over the runs that know it; ranks are rounded.

    Examples:
        >>> _means([{"score": 1.0, "rank": 8}, {"score": 2.0, "rank": 9}, {"score": None}])
        {'score': 1.5, 'rank': 8}
    """
    values: dict[str, list[float]] = {}
    for run_facts in facts:
        for name, value in run_facts.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    means = {name: statistics.fmean(numbers) for name, numbers in values.items()}
    return {name: round(mean) if "rank" in name else mean for name, mean in means.items()}


def make_progress(title: str, total: int, done: int = 0) -> Progress:
    """Return a live bar on a terminal, plain lines otherwise, and beside another live bar."""
    if sys.stdout.isatty() and _TERMINAL.acquire(blocking=False):
        try:
            return LiveBar(title, total, done, closed=_TERMINAL.release)
        except BaseException:
            _TERMINAL.release()
            raise
    return PlainLines(title, total, done)


class Quiet:
    """A progress display that shows nothing."""

    def __init__(self, title: str, total: int, done: int = 0) -> None: ...

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""
