"""What a comparison of two variants may say: higher, lower, or that no difference is shown."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hadamard.report.statistics.estimates import (
    CONFIDENCE,
    RESAMPLES,
    Aggregate,
    ByTask,
    Estimate,
    aggregate_named,
    by_task,
    estimate,
    probability_of_improvement,
)

MIN_SEEDS = 3
"""Seeds a side in every task. Of two seeds the bootstrap has three outcomes to offer, so that
its bounds are the seeds themselves and say nothing about others."""
RAREST_CHANCE = 0.05
"""What chance can do must be rarer than this. Equal variants whose runs are dealt out at random
come to lie wholly apart, in every task and the same way round, in 2 of prod binomial(n + m, n)
cases; if that alone is more often than this, no outcome whatever could be a result. It asks for
4 seeds a side on one task; from two tasks on, `MIN_SEEDS` asks for more than it does."""
EVEN_CHANCE = 0.5
"""The probability of improvement of a variant over itself. An interval that contains it leaves
open which of the two does better on most tasks, even where a few tasks move the aggregate."""

Outcome = Literal["higher", "lower", "no difference shown"]


@dataclass(frozen=True)
class Verdict:
    """What two sets of scores allow to be said of them."""

    outcome: Outcome
    """How our scores compare with theirs."""
    reasons: tuple[str, ...]
    """Why no difference is shown; empty if one is."""
    aggregate: Aggregate
    ours: Estimate
    theirs: Estimate
    improvement: Estimate
    """How likely a run of ours beats one of theirs on the same task."""
    tasks: int
    seeds: tuple[int, int]
    """The lowest and the highest number of seeds of any task, on either side."""

    def sentence(
        self, ours: str, theirs: str, text: Callable[[float], str] = "{:.3g}".format
    ) -> str:
        """Write the verdict and the numbers behind it, with names for the two sides.

        Examples:
            >>> scores = [[8.0, 9.0, 10.0, 9.5], [3.0, 4.0, 5.0, 4.5]]
            >>> verdict = compare(scores, scores, rng=np.random.default_rng(0))
            >>> verdict.sentence("tanh + HR", "tanh").partition(":")[0]
            'tanh + HR against tanh, no difference shown'
        """
        if self.outcome == "no difference shown":
            said = f"{ours} against {theirs}, {self.outcome}: {'; '.join(self.reasons)}."
        else:
            said = f"{ours} scored {self.outcome} than {theirs}."
        few, most = self.seeds
        seeds = f"{few} seed{'' if most == 1 else 's'}" if few == most else f"{few} to {most} seeds"
        on = f"{seeds} on {self.tasks} task{'' if self.tasks == 1 else 's'}"
        return (
            f"{said} {self.aggregate.label[:1].upper()}{self.aggregate.label[1:]}: "
            f"{_told(self.ours, text)} against {_told(self.theirs, text)}; a run of {ours} beats "
            f"one of {theirs} with probability {_told(self.improvement, '{:.2f}'.format)} ({on})."
        )


def compare(
    ours: ByTask,
    theirs: ByTask,
    aggregate: str | Aggregate = "iqm",
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Verdict:
    """Say how two variants' scores on the same tasks compare, as far as they allow it.

    A difference is shown if there are enough seeds, the intervals of the two aggregates do not
    overlap, and the interval of the probability of improvement lies on the same side of 0.5.
    Intervals that do not overlap are more than a test of the difference would ask for. It is
    what a reader sees in the figure, so text and figure agree; and it makes up for intervals
    that are too narrow with few seeds.

    One comparison is meant. Of twenty made on a page, chance makes one or the other too.

    Examples:
        >>> good, bad = [[8.0, 9.0, 10.0, 9.5]], [[3.0, 4.0, 5.0, 4.5]]
        >>> compare(good, bad, rng=np.random.default_rng(0)).outcome
        'higher'
        >>> verdict = compare(good, [[3.0, 4.0]], rng=np.random.default_rng(0))
        >>> verdict.outcome, verdict.reasons
        ('no difference shown', ('too few seeds (2, at least 3 are needed)',))
    """
    chosen = aggregate_named(aggregate)
    # Each from where the generator stands now: the very intervals `estimate` gives of either side.
    mine, other = (
        estimate(side, chosen, rng=copy.deepcopy(rng), resamples=resamples)
        for side in (ours, theirs)
    )
    improvement = probability_of_improvement(ours, theirs, rng=rng, resamples=resamples)
    sides = by_task(ours), by_task(theirs)
    counts = [[len(side[task]) for side in sides] for task in sides[0]]
    seeds = min(map(min, counts)), max(map(max, counts))

    up, down = mine.low > other.high, mine.high < other.low
    if chosen.falls:
        up, down = down, up
    likely, unlikely = improvement.low > EVEN_CHANCE, improvement.high < EVEN_CHANCE
    reasons = _too_few(counts)
    if not reasons:
        if not up and not down:
            reasons.append(f"the {CONFIDENCE:.0%} intervals overlap")
        if not likely and not unlikely:
            reasons.append(f"the probability of improvement's interval contains {EVEN_CHANCE:g}")
        if (up and unlikely) or (down and likely):
            reasons.append("the aggregate and the probability of improvement contradict each other")
    outcome: Outcome = "higher" if up else "lower"
    if reasons:
        outcome = "no difference shown"
    return Verdict(outcome, tuple(reasons), chosen, mine, other, improvement, len(counts), seeds)


def _too_few(counts: list[list[int]]) -> list[str]:
    """Say whether there are too few seeds for any result."""
    fewest = min(map(min, counts))
    if fewest < MIN_SEEDS:
        return [f"too few seeds ({fewest}, at least {MIN_SEEDS} are needed)"]
    chance = 2 / math.prod(math.comb(n + m, n) for n, m in counts)
    if chance > RAREST_CHANCE:
        return [
            f"too few seeds ({fewest}: equal variants lie wholly apart in {100 * chance:.2g}% "
            "of cases)"
        ]
    return []


def _told(number: Estimate, text: Callable[[float], str]) -> str:
    if not number.has_interval:
        return f"{text(number.value)} (no interval)"
    return f"{text(number.value)} ({text(number.low)} to {text(number.high)})"
