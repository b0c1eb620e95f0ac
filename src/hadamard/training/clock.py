"""Where a run's time goes, by part of the work."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Seconds spent on each part of the work, and on the whole run over all its processes."""

    def __init__(self) -> None:
        self.seconds_before = 0.0
        """Seconds that earlier processes spent on the run."""
        self.started = time.perf_counter()
        self.seconds_by_part: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds of the whole run so far."""
        return self.seconds_before + time.perf_counter() - self.started

    def __call__(self, part: str) -> Span:
        """Time the block inside ``with`` as a part of the work."""
        return Span(self.seconds_by_part, part)

    def row(self, step: int) -> dict[str, Any]:
        """Return a row of timing.jsonl: the whole run's seconds, and this process's by part."""
        parts = {name: round(seconds, 3) for name, seconds in self.seconds_by_part.items()}
        return {"step": step, "seconds": round(self.seconds, 3), "parts": parts}


class Span:
    """A timed block. A class, since a context manager from a generator is three times slower."""

    def __init__(self, seconds_by_part: dict[str, float], part: str) -> None:
        self.seconds_by_part, self.part = seconds_by_part, part

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self.started
        self.seconds_by_part[self.part] = self.seconds_by_part.get(self.part, 0.0) + seconds
