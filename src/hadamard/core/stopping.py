"""Signals that ask the program to stop, and the exit code that says it did."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 75
"""Exit code of a program that was asked to stop and has saved its work.

It is EX_TEMPFAIL of sysexits.h: running the same command again continues.
"""


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn SIGTERM and SIGINT into a flag; a SIGINT after that interrupts at once."""
    received: list[int] = []

    def handle(number: int, _frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    try:
        old: Mapping[int, Any] = {
            n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)
        }
    except ValueError:  # only the main thread may set handlers
        old = {}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
