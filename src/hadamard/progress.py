"""What a person sees of a training run: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol


class Progress(Protocol):
    """Told of a run's state now and then."""

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Show the state; ``facts`` may lack what is not known yet."""

    def close(self) -> None:
        """Finish."""


def describe(facts: dict[str, Any]) -> str:
    """Return the known facts in words.

    Examples:
        >>> describe({"score": 12.34, "dormant": 0.25, "rank": 40, "full_rank": 128})
        'score 12.3 · dormant 25.0% · rank 40/128'
    """
    words = []
    if facts.get("score") is not None:
        words.append(f"score {facts['score']:.1f}")
    if facts.get("greedy") is not None:
        words.append(f"greedy {facts['greedy']:.1f}")
    if facts.get("dormant") is not None:
        words.append(f"dormant {facts['dormant']:.1%}")
        words.append(f"rank {facts['rank']}/{facts['full_rank']}")
    return " · ".join(words)


def duration(seconds: float) -> str:
    """Return a time span for a person.

    Examples:
        >>> duration(75), duration(4000)
        ('1m15s', '1h06m')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class Lines:
    """A plain line every few seconds, for logs."""

    def __init__(self, title: str, total: int, done: int = 0, every: float = 10.0) -> None:
        self.total, self.start, self.every = total, done, every
        self.began = self.last = time.monotonic()
        print(title, flush=True)

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Print a line if the last one is old enough, or this is the end."""
        now = time.monotonic()
        if now - self.last < self.every and step < self.total:
            return
        self.last = now
        rate = (step - self.start) / max(now - self.began, 1e-9)
        left = duration(max(self.total - step, 0) / max(rate, 1e-9))
        print(
            f"{step:,}/{self.total:,} steps · {rate:,.0f}/s · {describe(facts)} · {left} left",
            flush=True,
        )

    def close(self) -> None:
        """Nothing is open."""


class LiveLine:
    """A live progress bar with the run's score and health."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.console = Console()
        self.console.print(title, highlight=False)
        self.bar = Bar(
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self.bar.start()
        self.task = self.bar.add_task("train", total=total, completed=done, rate="", facts="")
        self.seen = (time.monotonic(), done)

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Move the bar."""
        now, (then, before) = time.monotonic(), self.seen
        if now - then < 0.2 and step < (self.bar.tasks[0].total or 0):
            return
        self.seen = (now, step)
        rate = f"{(step - before) / max(now - then, 1e-9):,.0f} steps/s"
        self.bar.update(self.task, completed=step, rate=rate, facts=describe(facts))

    def close(self) -> None:
        """Leave the bar as it stands."""
        self.bar.stop()


def make_progress(title: str, total: int, done: int = 0) -> Progress:
    """Return a live line on a terminal, plain lines otherwise."""
    if sys.stdout.isatty():
        return LiveLine(title, total, done)
    return Lines(title, total, done)
