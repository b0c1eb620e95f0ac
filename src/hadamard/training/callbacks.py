"""Callbacks: functions of the user's that are told how training goes, and may stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["log", "evaluation", "checkpoint"]


@dataclass(frozen=True)
class Event:
    """What a callback is told: something was just written to the run's folder."""

    kind: Kind
    """``log``: a row of train.jsonl; ``evaluation``: the greedy episodes of an evaluation;
    ``checkpoint``: a checkpoint."""
    run: Path
    """The run's folder."""
    step: int
    """Steps so far."""
    steps: int
    """Steps after which training ends."""
    score: float | None
    """Mean of the last 100 training episodes; None before the first one ended."""
    greedy_score: float | None
    """Score of the greedy episodes so far; None where there are none."""
    values: Mapping[str, Any]
    """Of a log its row, of an evaluation the ``scores`` of its episodes, of a checkpoint its
    ``path``."""
    stop: Callable[[], None]
    """Call it to stop the run: it is saved as soon as it can be, and can be resumed."""


Callback = Callable[[Event], object]
"""It is called with every event; what it returns does not matter."""


class Callbacks:
    """The callbacks of one run, called one after the other.

    If one raises an exception, the run is stopped and saved, and then the exception is raised.
    """

    def __init__(self, callbacks: Sequence[Callback], run: Path, steps: int) -> None:
        self.callbacks, self.run, self.steps = list(callbacks), run, steps
        self.stopping = False
        """Whether a callback asked to stop the run."""
        self.error: Exception | None = None
        """What a callback raised."""
        self._lock = threading.RLock()  # a fleet saves its runs in several threads

    def tell(
        self,
        kind: Kind,
        step: int,
        scores: Mapping[str, float | None],
        values: Mapping[str, Any],
    ) -> None:
        """Call the callbacks."""
        with self._lock:
            for callback in self.callbacks:
                if self.error is not None:
                    return
                event = Event(
                    kind,
                    self.run,
                    step,
                    self.steps,
                    scores["score"],
                    scores["greedy"],
                    dict(values),
                    self.stop,
                )
                try:
                    callback(event)
                except Exception as error:
                    self.error = error
                    self.stop()

    def stop(self) -> None:
        """Stop the run as soon as it can be saved."""
        self.stopping = True


def listed(callbacks: Callback | Sequence[Callback]) -> list[Callback]:
    """Return one or several callbacks as a list; anything that cannot be called is an error."""
    functions: list[Any]
    functions = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    for function in functions:
        if not callable(function):
            raise TypeError(f"a callback must be a function of one event, got {function!r}")
    return functions
