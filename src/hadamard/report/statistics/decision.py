"""What scores allow to be said: the project's one rule for claims and for comparisons.

A claim is about the aggregate of our variant minus that of another on the same tasks, in points
or in percent of the other's aggregate, or about the aggregate of one variant (a level). Its 95 %
interval decides:

- a direction ("higher than the baseline"): supported if the interval lies on the claimed side of
  0, not supported if it lies on the other side;
- a size ("18 % higher"): supported if the interval contains the stated number, not supported if
  it does not. An interval that contains both the stated change and 0 decides nothing;
- equality ("as good as"): supported if the interval lies inside a margin stated beforehand, not
  supported if it lies wholly outside.

Everything else is undecided. Pages without claims word the same interval as "higher", "lower" or
"no difference shown".

The interval starts from a percentile bootstrap of the difference itself. With fewer than
`TASKS_TO_RESAMPLE` tasks, seeds are drawn anew with replacement within each task and side, so it
speaks of these tasks only, and needs several seeds. With more, tasks are drawn anew too: a drawn
task brings both sides, and each side's seeds are drawn anew within it. It then speaks of tasks like
these, and one seed a task can decide.

Drawn from n units a bootstrap sees only (n - 1) / n of their variance, and it does not know how
uncertain that variance is. So every draw's distance from the estimate is multiplied by

    t / 1.96 * sqrt(n / (n - 1)),

t being the 97.5 % point of Student's distribution. Where tasks are drawn, n is their number, with
n - 1 degrees of freedom. Where only seeds are drawn, they come from several samples, one for each
task and side, so both factors are Welch's: degrees of freedom after Welch and Satterthwaite, and
n / (n - 1) weighted by each sample's part in the variance of the mean. One task whose scores
vary far more than the others' then counts as the one sample it is. A task's variance is taken from
both sides together where that is larger, as it is where few skewed scores of one side happen to
lie close together. The factor is exact for means and an approximation for other aggregates.

Percentages are made of the widened draws, so they never have another sign than the difference in
points, and the baseline's own uncertainty counts.

How often equal variants are told apart is simulated by ``benchmarks/error_rates.py``; the results
are in docs/reproduce.md. One comparison is meant: of twenty on a page, chance makes one or the
other too. Where tasks are drawn and there are several seeds, the noise between seeds enters twice
(once as differences between tasks), so the interval is wider than need be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from hadamard.report.statistics.estimates import (
    CONFIDENCE,
    RESAMPLES,
    Aggregate,
    Band,
    ByTask,
    Estimate,
    FloatArray,
    IntArray,
    Runs,
    aggregate_named,
    by_task,
    check_draws,
    paired,
    student_t,
)

TASKS_TO_RESAMPLE = 6
"""From so many tasks on, tasks are drawn anew as well as seeds."""
MIN_SEEDS = 3
"""Seeds a side in every task, where only seeds are drawn: two say too little of their spread."""
RAREST_CHANCE = 0.05
"""What chance can do must be rarer than this, where only seeds are drawn. Runs of equal variants
dealt out at random lie wholly apart, in every task and the same way round, in 2 of
prod binomial(n + m, n) cases; if that is more often than this, no outcome could be a result. It
asks for 4 seeds a side on one task; from two tasks on, `MIN_SEEDS` asks for more than it does."""

Unit = Literal["points", "percent"]
Verdict = Literal["supported", "not supported", "undecided"]
Outcome = Literal["higher", "lower", "no difference shown"]
_NOT: Verdict = "not supported"


@dataclass(frozen=True)
class Difference:
    """How much higher our aggregate is than theirs, or how high ours is, with its interval."""

    estimate: Estimate
    """The bounds are NaN where nothing can be decided."""
    unit: Unit
    """Points of the aggregate, or percent of their aggregate."""
    tasks: int
    seeds: tuple[int, int]
    """The lowest and the highest number of seeds of any task on either side."""
    resampled: Literal["seeds", "tasks and seeds"]
    too_few: str
    """Why nothing can be decided; empty if something can."""
    of: Literal["change", "level"] = "change"
    """Whether two variants are compared, or the aggregate of one is estimated."""

    @property
    def outcome(self) -> Outcome:
        """What a page without claims says of two variants."""
        if self.estimate.low > 0:
            return "higher"
        return "lower" if self.estimate.high < 0 else "no difference shown"

    def sentence(self, ours: str, theirs: str) -> str:
        """Say how two variants' scores compare, with names for them.

        Examples:
            >>> found = Difference(Estimate(1, 0.5, 2), "points", 1, (5, 5), "seeds", "")
            >>> found.sentence("tanh + HR", "tanh")
            'tanh + HR scored higher than tanh: difference 1 (0.5 to 2), 5 seeds on 1 task.'
        """
        said = f"{ours} scored {self.outcome} than {theirs}"
        if self.outcome == "no difference shown":
            reason = f", {self.too_few}" if self.too_few else ""
            said = f"{ours} against {theirs}, {self.outcome}{reason}"
        return f"{said}: difference {self.interval}, {self.evidence}."

    @property
    def interval(self) -> str:
        """The estimate with its interval and unit, in words.

        Examples:
            >>> estimate = Estimate(12.0, 3.5, 20.25)
            >>> Difference(estimate, "percent", 7, (1, 1), "tasks and seeds", "").interval
            '12 % (3.5 to 20.2)'
        """
        value, low, high = map(_text, self.estimate)
        unit = " %" if self.unit == "percent" else ""
        bounds = f"{low} to {high}" if self.estimate.has_interval else "no interval"
        return f"{value}{unit} ({bounds})"

    @property
    def evidence(self) -> str:
        """How many seeds and tasks it is made of, in words.

        Examples:
            >>> Difference(Estimate(1, 0, 2), "points", 1, (4, 5), "seeds", "").evidence
            '4 to 5 seeds on 1 task'
        """
        fewest, most = self.seeds
        seeds = str(most) if fewest == most else f"{fewest} to {most}"
        return (
            f"{seeds} seed{'' if most == 1 else 's'} "
            f"on {self.tasks} task{'' if self.tasks == 1 else 's'}"
        )


@dataclass(frozen=True)
class Judgement:
    """What became of a claim."""

    verdict: Verdict
    reason: str
    """One sentence with the numbers."""


def difference(
    ours: ByTask,
    theirs: ByTask,
    aggregate: str | Aggregate = "mean",
    *,
    unit: Unit = "points",
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Difference:
    """Return our aggregate minus theirs on the same tasks, with the interval that decides.

    In percent it is of their aggregate's magnitude, and there is no interval where that may be
    zero or of either sign. The sign is that of the aggregate: an optimality gap that falls is a
    negative difference.

    Examples:
        >>> good, bad = [[8.0, 9.0, 10.0, 9.5]], [[3.0, 4.0, 5.0, 4.5]]
        >>> shown = difference(good, bad, rng=np.random.default_rng(0))
        >>> shown.estimate.value, shown.outcome, shown.evidence
        (5.0, 'higher', '4 seeds on 1 task')
        >>> difference(good, [[3.0, 4.0]], rng=np.random.default_rng(0)).too_few
        'too few seeds (2; a single task needs 4 a side)'
    """
    if unit not in ("points", "percent"):
        raise ValueError(f"a difference is in 'points' or in 'percent', got {unit!r}")
    pairs = paired(ours, theirs)
    counts = [[side.size for side in pair] for pair in pairs]
    sides = [np.concatenate(side) for side in zip(*pairs, strict=True)]
    layouts = [Runs(np.array(side)) for side in zip(*counts, strict=True)]
    band = bands(sides, layouts, aggregate, unit=unit, rng=rng, resamples=resamples)
    too_few = _too_few(counts)
    if not too_few and math.isnan(band.low):
        too_few = "the baseline's aggregate may be zero, so there is no percentage of it"
    return _difference(band, unit, counts, too_few, "change")


def level(
    values: ByTask,
    aggregate: str | Aggregate = "mean",
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Difference:
    """Return the aggregate of one variant with the same interval, for claims about its size.

    Examples:
        >>> dormant = level([[0.6, 0.62, 0.64]], rng=np.random.default_rng(0))
        >>> judge_size(dormant, 0.62).verdict, judge_size(dormant, 0.31).verdict
        ('supported', 'not supported')
    """
    tasks = list(by_task(values).values())
    counts = [[task.size] for task in tasks]
    layouts = [Runs(np.array([task.size for task in tasks]))]
    sides = [np.concatenate(tasks)]
    band = bands(sides, layouts, aggregate, unit="points", rng=rng, resamples=resamples)
    return _difference(band, "points", counts, _too_few(counts), "level")


def judge_direction(
    found: Difference, expected: Literal["higher", "lower"], beyond: float = 0.0
) -> Judgement:
    """Judge the claim that a difference has one sign, and is larger than a number if one is given.

    Examples:
        >>> found = Difference(Estimate(5.0, 3.0, 7.0), "points", 1, (5, 5), "seeds", "")
        >>> judge_direction(found, "lower").verdict
        'not supported'
        >>> judge_direction(found, "higher", beyond=4.0).verdict
        'undecided'
    """
    if expected not in ("higher", "lower"):
        raise ValueError(f"a claimed direction is 'higher' or 'lower', got {expected!r}")
    if not 0 <= beyond < math.inf:
        raise ValueError(f"what a difference is claimed to exceed is no less than 0, got {beyond}")
    _check_change(found, "direction")
    if found.too_few:
        return _nothing(found)
    limit = beyond if expected == "higher" else -beyond
    if found.estimate.low <= limit <= found.estimate.high:
        return _judged(found, "undecided", f"contains {_text(limit)}")
    side = "above" if found.estimate.low > limit else "below"
    verdict: Verdict = "supported" if (side == "above") == (expected == "higher") else _NOT
    return _judged(found, verdict, f"lies {side} {_text(limit)}")


def judge_size(found: Difference, stated: float) -> Judgement:
    """Judge the claim that a difference or a level is as large as stated, in the same unit.

    A wide interval contains many numbers: "supported" means that the stated one is compatible
    with the scores, not that they single it out.

    Examples:
        >>> found = Difference(Estimate(5.0, -1.0, 11.0), "percent", 7, (1, 1), "seeds", "")
        >>> judge_size(found, 8.0).verdict, judge_size(found, 18.0).verdict
        ('undecided', 'not supported')
    """
    if not math.isfinite(stated):
        raise ValueError(f"a stated size is a finite number, got {stated}")
    if found.of == "change" and stated == 0:
        raise ValueError("a stated change of 0 is equality: use judge_equality with a margin")
    if found.too_few:
        return _nothing(found)
    number = f"the stated {_text(stated)}"
    if not found.estimate.low <= stated <= found.estimate.high:
        return _judged(found, "not supported", f"does not contain {number}")
    if found.of == "change" and found.estimate.low <= 0 <= found.estimate.high:
        return _judged(
            found, "undecided", f"contains {number} and 0: too wide to tell it from no change"
        )
    return _judged(found, "supported", f"contains {number}")


def judge_equality(found: Difference, margin: float) -> Judgement:
    """Judge the claim that a difference is no larger than a margin either way, in the same unit.

    Examples:
        >>> found = Difference(Estimate(0.5, -1.0, 2.0), "percent", 7, (1, 1), "seeds", "")
        >>> judge_equality(found, 5.0).verdict, judge_equality(found, 1.5).verdict
        ('supported', 'undecided')
    """
    if not 0 < margin < math.inf:
        raise ValueError(f"a margin of equality is a number above 0, got {margin}")
    _check_change(found, "equality")
    if found.too_few:
        return _nothing(found)
    within = f"the margin of {_text(margin)} either way"
    if found.estimate.low >= -margin and found.estimate.high <= margin:
        return _judged(found, "supported", f"lies inside {within}")
    if found.estimate.low > margin or found.estimate.high < -margin:
        return _judged(found, "not supported", f"lies outside {within}")
    return _judged(found, "undecided", f"reaches beyond {within} but is not wholly outside")


def bands(
    sides: Sequence[FloatArray],
    layouts: Sequence[Runs],
    aggregate: str | Aggregate,
    *,
    unit: Unit,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Band:
    """Return the differences of two sides, or the levels of one, with their intervals.

    A side holds the runs of all tasks along its last axis; other axes are separate experiments
    of the same layout, decided by the same draws. This is for simulations: whether there are
    enough seeds is not asked.
    """
    check_draws(resamples, CONFIDENCE)
    kernel = aggregate_named(aggregate).kernel
    places = _places(layouts, rng, resamples)
    values = [kernel(side, runs) for side, runs in zip(sides, layouts, strict=True)]
    draws = [
        kernel(side[..., place], runs)
        for side, runs, place in zip(sides, layouts, places, strict=True)
    ]
    # Draws are widened before they are compared: a percentage then never has another sign than
    # the difference in points, and the baseline's own uncertainty is widened with it.
    factor = _widening(sides, layouts)
    draws = [
        value[..., None] + factor[..., None] * (drawn - value[..., None])
        for value, drawn in zip(values, draws, strict=True)
    ]
    value, lows = values[0], draws[0]
    if len(sides) == 2:
        value, lows = value - values[1], lows - draws[1]
    highs = lows
    if unit == "percent":
        sound = np.sign(draws[1]) == np.sign(values[1])[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):
            value = 100 * value / np.where(values[1] == 0, np.nan, np.abs(values[1]))
            percent = 100 * lows / np.abs(draws[1])
        # Where the baseline may be zero or of the other sign, a percentage may be anything.
        lows, highs = np.where(sound, percent, -np.inf), np.where(sound, percent, np.inf)
    low = np.quantile(lows, (1 - CONFIDENCE) / 2, axis=-1, method="lower")
    high = np.quantile(highs, (1 + CONFIDENCE) / 2, axis=-1, method="higher")
    unknown = np.isinf(low) | np.isinf(high)
    # A skewed bootstrap may lie wholly on one side of the estimate; the interval reaches it.
    low = np.where(unknown, np.nan, np.minimum(low, value))
    high = np.where(unknown, np.nan, np.maximum(high, value))
    return Band(*(np.asarray(part) for part in (value, low, high)))


def _places(layouts: Sequence[Runs], rng: np.random.Generator, resamples: int) -> list[IntArray]:
    """Draw each side's runs anew; return (resamples, runs) places in its row.

    A task that is drawn in another's place lends it as many seeds as that one has.
    """
    tasks = len(layouts[0].counts)
    if tasks < TASKS_TO_RESAMPLE:
        return [runs.drawn(rng, resamples) for runs in layouts]
    drawn = rng.integers(tasks, size=(resamples, tasks))
    places = []
    for runs in layouts:
        task = np.repeat(drawn, runs.counts, axis=1)
        places.append(runs.starts[task] + rng.integers(runs.counts[task]))
    return places


def _widening(sides: Sequence[FloatArray], layouts: Sequence[Runs]) -> FloatArray:
    """Return by how much the distances of draws from the estimate are multiplied.

    See the module's docstring. NaN where a variance is unknown, for want of seeds.
    """
    normal = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    tasks = len(layouts[0].counts)
    if tasks >= TASKS_TO_RESAMPLE:
        return np.asarray(student_t(tasks - 1) / normal * math.sqrt(tasks / (tasks - 1)))
    counts = np.stack([runs.counts for runs in layouts])
    if counts.min() < 2:
        return np.asarray(math.nan)
    squares = np.stack([_squares(s, runs) for s, runs in zip(sides, layouts, strict=True)], axis=-2)
    # What each sample, (sides, tasks), adds to the variance of the mean; 1 where none varies.
    parts = squares / (counts - 1) / counts
    parts = np.where((parts == 0).all(axis=(-2, -1), keepdims=True), 1.0, parts)
    total = parts.sum(axis=(-2, -1))
    freedom = total**2 / (parts**2 / (counts - 1)).sum(axis=(-2, -1))
    pooled = squares.sum(axis=-2) / (counts - 1).sum(axis=0) * (1 / counts).sum(axis=0)
    variance = np.maximum(parts.sum(axis=-2), pooled).sum(axis=-1)
    seen = (parts * (counts - 1) / counts).sum(axis=(-2, -1))
    whole = np.floor(freedom + 1e-9).astype(int)
    table = np.array([math.nan, *(student_t(n) for n in range(1, int(whole.max()) + 1))])
    return np.asarray(table[whole] / normal * np.sqrt(variance / seen))


def _squares(side: FloatArray, runs: Runs) -> FloatArray:
    """Return each task's sum of squared deviations from its mean."""
    means = np.add.reduceat(side, runs.starts, axis=-1) / runs.counts
    deviations = side - np.repeat(means, runs.counts, axis=-1)
    return np.asarray(np.add.reduceat(deviations**2, runs.starts, axis=-1))


def _too_few(counts: list[list[int]]) -> str:
    """Say whether there are too few seeds for any result; ``counts`` are by task and side."""
    if len(counts) >= TASKS_TO_RESAMPLE:
        return ""
    fewest, two_sides = min(map(min, counts)), len(counts[0]) == 2
    chance = 2 / math.prod(math.comb(sum(seeds), seeds[0]) for seeds in counts)
    if fewest >= MIN_SEEDS and (chance <= RAREST_CHANCE or not two_sides):
        return ""
    needed = "a single task needs 4" if len(counts) == 1 else f"each task needs {MIN_SEEDS}"
    if not two_sides:
        return f"too few seeds ({fewest}; a level needs {MIN_SEEDS} on each task)"
    return f"too few seeds ({fewest}; {needed} a side)"


def _difference(
    band: Band,
    unit: Unit,
    counts: list[list[int]],
    too_few: str,
    of: Literal["change", "level"],
) -> Difference:
    value, low, high = (float(part) for part in band)
    if too_few:
        low = high = math.nan
    seeds = min(map(min, counts)), max(map(max, counts))
    resampled: Literal["seeds", "tasks and seeds"] = (
        "seeds" if len(counts) < TASKS_TO_RESAMPLE else "tasks and seeds"
    )
    return Difference(Estimate(value, low, high), unit, len(counts), seeds, resampled, too_few, of)


def _check_change(found: Difference, claim: str) -> None:
    if found.of != "change":
        raise ValueError(f"{claim} is claimed of a difference, and this is a level")


def _nothing(found: Difference) -> Judgement:
    return Judgement("undecided", f"Nothing can be decided: {found.too_few}.")


def _judged(found: Difference, verdict: Verdict, why: str) -> Judgement:
    name = "difference" if found.of == "change" else "level"
    return Judgement(
        verdict, f"The interval of the {name}, {found.interval}, {why} ({found.evidence})."
    )


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
