"""What a person sees of a training run: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
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
        self.over = False
        print(title, flush=True)

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Print a line if the last one is old enough, and once at the end."""
        now = time.monotonic()
        over = step >= self.total
        if self.over or (now - self.last < self.every and not over):
            return
        self.last, self.over = now, over
        rate = (step - self.start) / max(now - self.began, 1e-9)
        left = duration(max(self.total - step, 0) / max(rate, 1e-9))
        known = describe(facts)
        shown = f"{known} · " if known else ""  # nothing before the first episode has ended
        print(
            f"{step:,}/{self.total:,} steps · {rate:,.0f}/s · {shown}{left} left",
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
        self.task = self.bar.add_task(
            "train", total=total, completed=done, rate="", facts="starting"
        )
        self.seen, self.rate, self.total = (time.monotonic(), done), "", total

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Move the bar, a few times a second and at the end."""
        now, (then, before) = time.monotonic(), self.seen
        if now - then >= 0.2:  # of a shorter time, a speed would be noise
            self.seen = (now, step)
            self.rate = f"{(step - before) / (now - then):,.0f} steps/s"
        elif step < self.total:
            return
        self.bar.update(self.task, completed=step, rate=self.rate, facts=describe(facts))

    def close(self) -> None:
        """Leave the bar as it stands."""
        self.bar.stop()


class Together:
    """One display for several runs: the steps of all of them, and the mean of what they tell.

    Called like a display's class, once for each run.
    """

    def __init__(self, make: Callable[[str, int, int], Progress], count: int) -> None:
        self.make, self.count = make, count
        self.titles: list[str] = []
        self.steps: list[int] = []
        self.facts: list[dict[str, Any]] = []
        self.total = 0
        self.display: Progress | None = None

    def __call__(self, title: str, total: int, done: int = 0) -> Progress:
        """Take in a run; with the last one the display appears."""
        self.titles.append(title)
        self.steps.append(done)
        self.facts.append({})
        self.total += total
        if len(self.titles) == self.count:
            self.display = self.make("\n".join(self.titles), self.total, sum(self.steps))
        return _Share(self, len(self.titles) - 1)

    def update(self) -> None:
        """Show all runs."""
        if self.display is not None:
            self.display.update(sum(self.steps), _mean(self.facts))

    def close(self, which: int) -> None:
        """Forget a run that is over; with the last one the display goes."""
        self.titles[which] = ""
        if self.display is not None and not any(self.titles):
            self.display.close()


class _Share:
    def __init__(self, whole: Together, which: int) -> None:
        self.whole, self.which = whole, which

    def update(self, step: int, facts: dict[str, Any]) -> None:
        self.whole.steps[self.which], self.whole.facts[self.which] = step, dict(facts)
        self.whole.update()

    def close(self) -> None:
        self.whole.close(self.which)


def _mean(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each fact over the runs that know it.

    Examples:
        >>> _mean([{"score": 1.0, "rank": 8}, {"score": 2.0, "rank": 9}, {"score": None}])
        {'score': 1.5, 'rank': 8}
    """
    known: dict[str, list[float]] = {}
    for of_run in facts:
        for name, value in of_run.items():
            if value is not None:
                known.setdefault(name, []).append(value)
    means = {name: statistics.fmean(values) for name, values in known.items()}
    return {name: round(m) if "rank" in name else m for name, m in means.items()}


def make_progress(title: str, total: int, done: int = 0) -> Progress:
    """Return a live line on a terminal, plain lines otherwise."""
    if sys.stdout.isatty():
        return LiveLine(title, total, done)
    return Lines(title, total, done)
