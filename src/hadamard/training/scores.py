"""The scores of a run so far: of its training episodes and of its greedy games."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection

from hadamard.core.scores import SCORE_EPISODES, greedy_window_mean


class Scores:
    """Training scores, and greedy scores of evaluations or of games played beside training."""

    def __init__(self, budget: int, *, evaluations: bool) -> None:
        self.budget, self.evaluations = budget, evaluations
        self.training: deque[float] = deque(maxlen=SCORE_EPISODES)
        # Every row of eval.jsonl: the step at which a game ended, and its score.
        self.greedy_steps: list[int] = []
        self.greedy: list[float] = []

    def add_greedy(self, step: int, score: float) -> None:
        """Add a greedy game that ended at a step."""
        self.greedy_steps.append(step)
        self.greedy.append(score)

    def training_score(self) -> float | None:
        """Return the mean of the last training episodes; None before the first."""
        return mean(self.training)

    def greedy_score(self, step: int) -> float | None:
        """Return the mean of the newest evaluation, or of the recent games beside training."""
        if not self.greedy_steps:
            return None
        if self.evaluations:
            return mean(self.greedy[bisect_left(self.greedy_steps, self.greedy_steps[-1]) :])
        return greedy_window_mean(self.greedy_steps, self.greedy, now=step, budget=self.budget)

    def at(self, step: int) -> dict[str, float | None]:
        """Return both scores at a step, by the names that the display and callbacks have."""
        return {"score": self.training_score(), "greedy": self.greedy_score(step)}


def mean(values: Collection[float]) -> float | None:
    """Return the mean, or None if there are no values."""
    return math.fsum(values) / len(values) if values else None
