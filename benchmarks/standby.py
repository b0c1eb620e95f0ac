"""Processes that set something up side by side, and then measure it one after another."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any


def _work(pipe: Connection, single_thread: bool, create: Callable[..., Any], given: Any) -> None:
    """Set up, then measure for as long as asked, until nothing is asked any more."""
    if single_thread:
        os.environ["OMP_NUM_THREADS"] = "1"
    with closing(create(*given)) as timed, suppress(EOFError):  # the main process has ended
        pipe.send((timed.setup_seconds, getattr(timed, "shape", "")))
        while (seconds := pipe.recv()) is not None:
            pipe.send(timed.measure(seconds))


class Standby:
    """One such process.

    ``create(*given)`` sets up what has ``setup_seconds``, ``measure(seconds)``, ``close()`` and
    perhaps a ``shape``, which is said with the results.
    """

    def __init__(
        self, create: Callable[..., Any], *given: Any, single_thread: bool = False
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = multiprocessing.Pipe()
        # Not a daemon, which could not start the processes that play Atari.
        self._process = context.Process(target=_work, args=(theirs, single_thread, create, given))
        self._process.start()
        theirs.close()
        self._ready: list[tuple[float, str] | None] = []

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            return None

    def wait(self) -> tuple[float, str] | None:
        """Wait until it is set up; return the seconds and the shape, None if it has failed."""
        if not self._ready:
            self._ready.append(self._receive())
        return self._ready[0]

    def measure(self, seconds: float) -> Any:
        """Measure for so long; None if it has failed, which the process has printed."""
        self._pipe.send(seconds)
        return self._receive()

    def close(self) -> None:
        """End the process; again does nothing."""
        if self._pipe.closed:
            return
        with suppress(OSError):
            self._pipe.send(None)
        self._pipe.close()
        self._process.join()
