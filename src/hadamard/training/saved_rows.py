"""The rows that a run has written already, when it is continued."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

from hadamard.core import checkpoint
from hadamard.core.files import RunError
from hadamard.core.run import Run
from hadamard.core.streams import NOTHING
from hadamard.core.typed import WrongType, checked


class SavedRows:
    """The rows of one run, which are checked before anything is continued from them."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def require(self, path: Path, saved: checkpoint.Manifest) -> None:
        """Refuse a checkpoint whose rows are no longer all in the streams, or of other types."""
        if problems := self.run.problems(saved.extents or {}):
            raise checkpoint.CheckpointError(
                f"{path} cannot be continued from, rows before it are lost: {'; '.join(problems)}. "
                "Restore these files from a copy, or remove the run to train it anew"
            )
        if saved.extents is not None:
            try:
                list(self.evaluations(saved.extents.get("eval", NOTHING).rows))
            except (RunError, WrongType) as error:
                raise checkpoint.CheckpointError(
                    f"{path} cannot be continued from: {error}"
                ) from error

    def cut(self, saved: checkpoint.Manifest, step: int, logged_step: int) -> None:
        """Drop the rows that were written after a checkpoint."""
        if saved.extents is None:  # saved by an earlier version
            # A finished run ends with an extra row, which the same run trained further lacks.
            self.run.cut_after(step, train=logged_step, timing=logged_step)
        else:
            self.run.cut(saved.extents, step)

    def seconds(self) -> float:
        """Return how long the run has trained, by its last row of timing."""
        seconds = 0.0
        for row in self.run.rows("timing"):
            try:
                seconds = checked(row.get("seconds"), float, "seconds")
            except WrongType as error:
                path = self.run.path / "timing.jsonl"
                warnings.warn(f"{path}: {error}; timing goes on without it", stacklevel=4)
        return seconds

    def evaluations(self, count: int | None = None) -> Iterator[tuple[int, float]]:
        """Yield the step and the score of each greedy game, or of so many."""
        path = self.run.path / "eval.jsonl"
        for row in itertools.islice(self.run.rows("eval"), count):
            step, score = (checked(row.get(n), float, f"{path}: {n}") for n in ("step", "score"))
            yield step, score
