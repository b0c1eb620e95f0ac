"""Signals that ask the program to stop, and the exit code that says it did.

SIGTERM, SIGINT and SIGHUP (a lost terminal) mean the same. While runs are trained, a signal sets a
flag, and the runs save and end (`stop_signals`). At any other time it raises `Stopped`, since
there is nothing to save (`stop_at_once`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 75
"""Exit code of a program that was asked to stop and has saved its work.

It is EX_TEMPFAIL of sysexits.h: running the same command again continues.
"""
_NAMES = ("SIGTERM", "SIGINT", "SIGHUP")
SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))  # on Windows two
_SECONDS_UNTIL_RAISED_AGAIN = 1.0

Handler = Callable[[int, Any], Any]


class Stopped(BaseException):
    """The program was asked to stop while it had nothing to save."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code with which shells report a program that a signal ended."""
        return 128 + self.number


class _AtOnce:
    """Raises `Stopped`, unless it is on its way already or a stop has been answered."""

    def __init__(self) -> None:
        self.number = 0
        """The signal that came first; 0 before any."""
        self.answered = False
        """Whether `stop_signals` received a stop: the program is about to end."""

    def __call__(self, number: int, _frame: Any) -> None:
        if self.answered or _is_stopping():
            return
        if not self.number:
            self.number = number
            # Some libraries swallow every exception while they are imported: raise it again.
            signal.setitimer(
                signal.ITIMER_REAL, _SECONDS_UNTIL_RAISED_AGAIN, _SECONDS_UNTIL_RAISED_AGAIN
            )
        raise Stopped(self.number)


_at_once: _AtOnce | None = None


@contextmanager
def stop_at_once(*, restore: bool = True) -> Iterator[None]:
    """Raise `Stopped` at the first signal; further signals change nothing while it is raised.

    Without ``restore`` the handlers stay after the block, for a process that ends with it.
    """
    global _at_once
    if not hasattr(signal, "SIGALRM"):  # Windows, where nothing is trained
        yield
        return
    outer, handler = _at_once, _AtOnce()
    replaced = _install(handler, *SIGNALS, signal.SIGALRM)
    if replaced:
        _at_once = handler
    try:
        yield
    finally:
        if replaced and restore:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _at_once = outer
            _restore(replaced)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn signals into a flag; a SIGINT after the first signal interrupts at once."""
    received: list[int] = []
    if _at_once is not None and _at_once.number:  # raised before, and swallowed by a library
        signal.setitimer(signal.ITIMER_REAL, 0)
        received.append(_at_once.number)

    def handle(number: int, _frame: Any) -> None:
        if received and number == signal.SIGINT and not _is_stopping():
            raise KeyboardInterrupt
        received.append(number)

    replaced = _install(handle, *SIGNALS)
    try:
        yield lambda: bool(received)
    finally:
        if received and _at_once is not None:
            _at_once.answered = True
        _restore(replaced)


def ignore_signals() -> None:
    """Ignore further signals: the program has done its work and is ending."""
    if _at_once is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _install(signal.SIG_IGN, *SIGNALS)


def _is_stopping() -> bool:
    """Tell whether an exception that ends the program is being handled, such as in clean-up."""
    error = sys.exception()
    while error is not None:
        if isinstance(error, Stopped | KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _install(handler: Handler | signal.Handlers, *numbers: int) -> dict[int, Any]:
    """Install a handler for some signals, and return the earlier handlers."""
    # nohup has SIGHUP ignored, and it stays so.
    numbers = tuple(
        number
        for number in numbers
        if number != getattr(signal, "SIGHUP", 0) or signal.getsignal(number) != signal.SIG_IGN
    )
    try:
        return {number: signal.signal(number, handler) for number in numbers}
    except ValueError:  # only the main thread may set handlers
        return {}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
