"""How training ends before its last step."""

from __future__ import annotations


class Interrupted(Exception):
    """Training was asked to stop; the checkpoints of these runs are written."""


class StoppedByCallback(Exception):
    """A callback stopped training, and the checkpoint is written; ``error`` is what it raised."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__(str(error or "a callback stopped the run"))
        self.error = error


class Diverged(RuntimeError):
    """A loss or a weight is no longer finite."""
