"""Finished episodes on their way to the streams of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hadamard.core.types import Episode


class Episodes(NamedTuple):
    """Finished episodes in columns: a tuple for each of 100,000 a second would be slow."""

    step: Sequence[int]
    """When each ended."""
    env: Sequence[int]
    score: Sequence[float]
    length: Sequence[int]

    @classmethod
    def ended_at(cls, step: int, episodes: Sequence[Episode]) -> Episodes:
        """Return episodes that ended at one step."""
        env, score, length = zip(*episodes, strict=True) if episodes else ((), (), ())
        return cls([step] * len(episodes), env, score, length)

    def lines(self) -> list[str]:
        """Return the rows of episodes.jsonl, as JSON."""
        return [
            f'{{"step": {step}, "env": {env}, "score": {_number(score)}, "length": {length}}}'
            for step, env, score, length in zip(*self, strict=True)
        ]


def _number(value: float) -> str:
    """Return a number as JSON holds it."""
    return repr(float(value)) if math.isfinite(value) else "null"
