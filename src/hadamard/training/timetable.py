"""When evaluations, checkpoints, diagnoses, log rows and films are due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from hadamard.core.config import TrainSpec


class Due(NamedTuple):
    """Which tasks are due after a step."""

    evaluation: bool
    checkpoint: bool
    diagnosis: bool
    log: bool
    film: bool = False


@dataclass(frozen=True)
class Timetable:
    """The interval of each task in steps; 0 means never."""

    evaluation: int
    checkpoint: int
    diagnosis: int
    log: int
    film: int = 0

    @classmethod
    def of_settings(cls, train: TrainSpec, *, diagnosis: int) -> Self:
        """Return the intervals of a run's settings; a short run's diagnosis has its own."""
        return cls(
            train.eval_every, train.checkpoint_every, diagnosis, train.log_every, train.film_every
        )

    def due(self, before: int, after: int) -> Due:
        """Return which tasks became due between two step counts.

        Examples:
            >>> Timetable(evaluation=0, checkpoint=100, diagnosis=50, log=10).due(48, 56)
            Due(evaluation=False, checkpoint=False, diagnosis=True, log=True, film=False)
        """
        intervals = (self.evaluation, self.checkpoint, self.diagnosis, self.log, self.film)
        return Due(*(every > 0 and after // every > before // every for every in intervals))
