"""Being asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn SIGTERM and SIGINT into a flag; a second SIGINT interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _frame: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        old: Mapping[int, Any] = {n: signal.signal(n, ask) for n in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not in the main thread, where signals are somebody else's
        old = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
