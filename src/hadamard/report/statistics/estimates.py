"""What a set of scores amounts to, and how sure one can be of it.

Scores are given task by task, as ``{"atari/Breakout": [one number a seed], ...}`` or as a list
of such arrays; tasks may have different numbers of seeds. Every task weighs the same whatever
its number of seeds, so that a lost run does not move an aggregate towards the other tasks.

Intervals are 95 % percentile intervals of a stratified bootstrap: the seeds of every task are
drawn anew with replacement, the tasks stay. They answer "what if the same tasks were run with
other seeds", and nothing about other tasks. With equal numbers of seeds all of this is what
rliable computes (Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice").

These are the intervals of figures and tables of aggregates: one variant's, over seeds. Claims and
comparisons are decided by another interval, that of the paired difference of two variants, which
is widened for few seeds and from six tasks on allows for other tasks (`decision`). So the bands of
two variants may overlap where their difference is shown, and the other way round.

With few seeds the bootstrap is too sure of itself: drawn from n seeds it sees (n - 1) / n of
their variance. Measured on normally distributed scores, 95 % intervals of a mean over ten tasks
hold 93 % of the time with 10 seeds, 92 % with 5 and 88 % with 3; on one task, 84 % with 5 and
74 % with 3. With one seed in any task there is no interval at all: the bounds are NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ByTask = Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike] | FloatArray
"""Scores task by task. An array is (tasks, seeds), the transpose of rliable's."""

RESAMPLES = 2000
"""Enough for bounds that move by a few hundredths of the interval from one draw to the next."""
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number with its interval; the bounds are NaN where there is none."""

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Whether there are bounds."""
        return not math.isnan(self.low)


class Band(NamedTuple):
    """Numbers along an axis with their intervals; NaN where there is none."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Runs:
    """How the runs of all tasks lie in one row: task after task; ``counts`` are seeds a task."""

    counts: IntArray

    @functools.cached_property
    def starts(self) -> IntArray:
        """Where each task begins."""
        return np.asarray(np.cumsum(self.counts) - self.counts)

    @functools.cached_property
    def total(self) -> int:
        """The number of runs."""
        return int(self.counts.sum())

    @functools.cached_property
    def even(self) -> bool:
        """Whether all tasks have as many seeds."""
        return bool((self.counts == self.counts[0]).all())

    @functools.cached_property
    def weights(self) -> FloatArray:
        """What each run counts, so that tasks count the same; they add up to 1."""
        return np.repeat(1 / (len(self.counts) * self.counts), self.counts)

    def drawn(self, rng: np.random.Generator, resamples: int) -> IntArray:
        """Draw the seeds of every task anew; return (resamples, runs) places in the row."""
        within = np.repeat(self.counts, self.counts)
        first = np.repeat(self.starts, self.counts)
        return rng.integers(within, size=(resamples, self.total)) + first


Kernel = Callable[[FloatArray, Runs], FloatArray]


def _task_means(values: FloatArray, runs: Runs) -> FloatArray:
    sums: FloatArray = np.add.reduceat(values, runs.starts, axis=-1)
    return sums / runs.counts


def _trimmed_mean(values: FloatArray, runs: Runs, cut: int) -> FloatArray:
    """Return the mean without the ``cut`` lowest and highest of the runs.

    With different numbers of seeds, without as much weight at each end as that many of the runs
    have on average; a run on the border then counts in part.
    """
    if runs.even:
        kept = np.sort(values, axis=-1)[..., cut : runs.total - cut]
        return np.asarray(kept.mean(axis=-1))
    order = np.argsort(values, axis=-1)
    weights = runs.weights[order]
    upto = np.cumsum(weights, axis=-1)
    low, high = cut / runs.total, 1 - cut / runs.total
    counted = np.clip(upto, low, high) - np.clip(upto - weights, low, high)
    ordered = np.take_along_axis(values, order, axis=-1)
    return np.asarray((ordered * counted).sum(axis=-1) / counted.sum(axis=-1))


def _mean(values: FloatArray, runs: Runs) -> FloatArray:
    return np.asarray(_task_means(values, runs).mean(axis=-1))


def _median(values: FloatArray, runs: Runs) -> FloatArray:
    return np.asarray(np.median(_task_means(values, runs), axis=-1))


def _median_of_runs(values: FloatArray, runs: Runs) -> FloatArray:
    return _trimmed_mean(values, runs, (runs.total - 1) // 2)


def _iqm(values: FloatArray, runs: Runs) -> FloatArray:
    return _trimmed_mean(values, runs, runs.total // 4)


def _iqm_of_task_means(values: FloatArray, runs: Runs) -> FloatArray:
    means = np.sort(_task_means(values, runs), axis=-1)
    cut = means.shape[-1] // 4
    return np.asarray(means[..., cut : means.shape[-1] - cut].mean(axis=-1))


@dataclass(frozen=True)
class Aggregate:
    """One number for all scores of all tasks."""

    name: str
    label: str
    """For a table's head or an axis."""
    reading: str
    """What is done with the scores, in one line."""
    kernel: Kernel


def optimality_gap(gamma: float = 1.0) -> Aggregate:
    """Return the aggregate that tells how far scores fall short of ``gamma`` on average."""
    if not math.isfinite(gamma):
        raise ValueError(f"the optimality gap's threshold gamma is a finite score, got {gamma}")

    def kernel(values: FloatArray, runs: Runs) -> FloatArray:
        return gamma - _mean(np.minimum(values, gamma), runs)

    return Aggregate(
        "optimality_gap",
        f"optimality gap to {gamma:g}",
        f"how far scores fall short of {gamma:g} on average; none makes up for another",
        kernel,
    )


_KNOWN = (
    Aggregate("mean", "mean", "average over seeds, then mean over tasks", _mean),
    Aggregate("median", "median of task means", "average over seeds, then median", _median),
    Aggregate(
        "median_of_runs", "median of all runs", "median over all tasks × seeds", _median_of_runs
    ),
    Aggregate(
        "iqm",
        "IQM of all runs",
        "mean of the middle half of all tasks × seeds (25 % cut off at either end)",
        _iqm,
    ),
    Aggregate(
        "iqm_of_task_means",
        "IQM of task means",
        "average over seeds, then mean of the middle half of the tasks",
        _iqm_of_task_means,
    ),
    optimality_gap(),
)
AGGREGATES = {aggregate.name: aggregate for aggregate in _KNOWN}
"""The aggregates by name. The paper leaves two of them open:

- PQN on 51 games: the text averages "the score across multiple independent seeds" and then
  sorts "the normalized scores for all 51 games * seeds". ``median`` is the first reading and
  what the paper's experiments section says of all aggregates (and what rliable and most papers
  call the median); ``median_of_runs`` is the second.
- IQM: the experiments section averages over seeds first (``iqm_of_task_means``), the appendix
  on HumanoidBench discards "the bottom and top 25% of (task, seed) scores" (``iqm``, as rliable).
"""
PQN_READINGS = ("median", "median_of_runs")
"""The two readings of the paper's aggregate for PQN, by their names in `AGGREGATES`."""


def aggregate_named(aggregate: str | Aggregate) -> Aggregate:
    """Return the aggregate of a name, or say which there are."""
    if isinstance(aggregate, Aggregate):
        return aggregate
    if aggregate not in AGGREGATES:
        raise ValueError(f"unknown aggregate {aggregate!r}; there are: {', '.join(AGGREGATES)}")
    return AGGREGATES[aggregate]


def point(scores: ByTask, aggregate: str | Aggregate = "iqm") -> float:
    """Return the aggregate of the scores, without an interval.

    Examples:
        >>> scores = {"easy": [8.0, 10.0], "hard": [0.0, 2.0]}
        >>> point(scores, "mean"), point(scores, "iqm"), point(scores, optimality_gap(6.0))
        (5.0, 5.0, 2.5)
    """
    row, runs = _row(scores)
    return float(aggregate_named(aggregate).kernel(row, runs))


def estimate(
    scores: ByTask,
    aggregate: str | Aggregate = "iqm",
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return the aggregate of the scores with its interval.

    Examples:
        >>> scores = {"easy": [8.0, 10.0], "hard": [0.0, 2.0]}
        >>> estimate(scores, "mean", rng=np.random.default_rng(0))
        Estimate(value=5.0, low=4.0, high=6.0)
    """
    row, runs = _row(scores)
    band = _band(row[None], runs, aggregate_named(aggregate).kernel, rng, resamples, confidence)
    return Estimate(float(band.value[0]), float(band.low[0]), float(band.high[0]))


def aggregate_curve(
    curves: Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike],
    aggregate: str | Aggregate = "iqm",
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Band:
    """Return the aggregate at every step of training, with intervals.

    ``curves`` are, for each task, (seeds, steps) at the same steps. Runs are drawn whole: a
    resample has the same seeds at every step. At steps where any run has no value (NaN) there
    is no aggregate either, since it would be one of other runs than elsewhere.
    """
    table, runs = _table(curves)
    kernel = aggregate_named(aggregate).kernel
    sound = ~np.isnan(table).any(axis=1)
    found = _band(table[sound], runs, kernel, rng, resamples, confidence)
    band = Band(*(np.full(len(table), np.nan) for _ in Band._fields))
    for whole, part in zip(band, found, strict=True):
        whole[sound] = part
    return band


def performance_profile(
    scores: ByTask,
    taus: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Band:
    """Return the fraction of runs that score more than each of ``taus``, with intervals.

    This is rliable's score distribution: of all runs, not of the tasks' means, which hide how
    runs of one task differ.
    """
    row, runs = _row(scores)
    thresholds = np.asarray(taus, dtype=np.float64)
    if thresholds.ndim != 1 or np.isnan(thresholds).any():
        raise ValueError("taus are thresholds in one row, none of them NaN")
    above = (row > thresholds[:, None]).astype(np.float64)
    return _band(above, runs, _mean, rng, resamples, confidence)


def probability_of_improvement(
    ours: ByTask,
    theirs: ByTask,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return how likely a run of ours beats one of theirs on the same task, with its interval.

    For each task the Mann-Whitney statistic as a fraction of all pairs, ties counting half;
    then the mean over tasks. Seeds of the two sides are drawn independently: equal seeds of two
    variants have nothing in common that would pair them.

    Examples:
        >>> ours, theirs = {"a": [2.0, 3.0], "b": [1.0, 1.0]}, {"a": [0.0, 1.0], "b": [1.0, 1.0]}
        >>> probability_of_improvement(ours, theirs, rng=np.random.default_rng(0))
        Estimate(value=0.75, low=0.75, high=0.75)
    """
    check_draws(resamples, confidence)
    pairs = paired(ours, theirs)
    values, draws = [], np.zeros(resamples)
    for mine, other in pairs:
        wins = (mine[:, None] > other).astype(np.float64) + 0.5 * (mine[:, None] == other)
        values.append(float(wins.mean()))
        # A resample is how often each seed was drawn, so its pairs need not be spelled out. Whole
        # numbers until the division: nothing but ties must come to 0.5 to the last digit.
        often_mine = _frequencies(rng, mine.size, resamples)
        often_other = _frequencies(rng, other.size, resamples)
        draws += ((often_mine @ wins) * often_other).sum(axis=1) / wins.size
    value = float(np.mean(values))
    if min(min(mine.size, other.size) for mine, other in pairs) < 2:
        return Estimate(value, math.nan, math.nan)
    low, high = np.quantile(draws / len(pairs), _ends(confidence))
    return Estimate(value, float(low), float(high))


def mean_curve(curves: npt.ArrayLike, *, confidence: float = CONFIDENCE) -> Band:
    """Return the mean over seeds at every step, with an interval; ``curves`` is (seeds, steps).

    The interval is Student's t and not a bootstrap: one task has few seeds, and there the
    bootstrap's interval is far too narrow (of 3 seeds it holds 74 % of the time where it says
    95 %). Student's is exact for normally distributed scores whatever their number, and still
    holds 88 % of the time for scores as skewed as an exponential distribution. The price is that
    it is symmetric, so that it may reach below zero or above one, and that of two seeds it is wide.

    Where any seed has no value (NaN) there is no mean, and with one seed there is no interval.

    Examples:
        >>> band = mean_curve([[1.0, 5.0], [3.0, 5.0]])
        >>> band.value.tolist(), band.low.round(2).tolist(), band.high.round(2).tolist()
        ([2.0, 5.0], [-10.71, 5.0], [14.71, 5.0])
    """
    _ends(confidence)
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim != 2 or not len(values):
        raise ValueError(f"curves are (seeds, steps), at least one seed; got {values.shape}")
    if np.isinf(values).any():
        raise ValueError("a value of the curves is infinite; leave the run out")
    mean = np.asarray(values.mean(axis=0))
    seeds = len(values)
    if seeds == 1:
        return Band(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    error = values.std(axis=0, ddof=1) / math.sqrt(seeds)
    reach = student_t(seeds - 1, confidence) * error
    return Band(mean, mean - reach, mean + reach)


@functools.cache
def student_t(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors either side of a mean the interval reaches.

    By bisection of Student's distribution, which is a finite sum for whole degrees of freedom
    (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Examples:
        >>> round(student_t(4), 3)
        2.776
    """

    def inside(angle: float) -> float:
        """Return the probability within sqrt(freedom) * tan(angle) of zero."""
        cosine, odd = math.cos(angle), freedom % 2
        term = cosine if odd else 1.0
        total = 0.0
        for k in range(1 + odd, freedom, 2):
            total += term
            term *= cosine * cosine * k / (k + 1)
        total *= math.sin(angle)
        return 2 / math.pi * (angle + total) if odd else total

    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _band(
    table: FloatArray,
    runs: Runs,
    kernel: Kernel,
    rng: np.random.Generator,
    resamples: int,
    confidence: float,
) -> Band:
    """Return the kernel of each row of (points, runs), with intervals."""
    check_draws(resamples, confidence)
    value = kernel(table, runs)
    if runs.counts.min() < 2:
        return Band(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    places = runs.drawn(rng, resamples)
    # Row by row: all rows at once would need resamples x runs x points numbers.
    bounds = [np.quantile(kernel(row[places], runs), _ends(confidence)) for row in table]
    low, high = np.reshape(bounds, (-1, 2)).T
    return Band(value, low, high)


def _frequencies(rng: np.random.Generator, seeds: int, resamples: int) -> FloatArray:
    """Draw how often each seed is in a resample, (resamples, seeds)."""
    often = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    return often.astype(np.float64)


def check_draws(resamples: int, confidence: float) -> None:
    """Refuse a number of resamples or a confidence that makes no interval."""
    if resamples < 1:
        raise ValueError(f"an interval needs resamples, got {resamples}")
    _ends(confidence)


def _ends(confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, such as 0.95; got {confidence}")
    return (1 - confidence) / 2, (1 + confidence) / 2


def by_task(scores: ByTask) -> dict[str, FloatArray]:
    """Return the scores as arrays by task, or say which of them cannot be used.

    Examples:
        >>> by_task({"atari/Pong": [1.0, float("nan")]})
        Traceback (most recent call last):
        ...
        ValueError: atari/Pong: the score of run 2 of 2 is NaN; leave the run out, and say so
    """
    found = {}
    for name, values in _named(scores).items():
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 1:
            raise ValueError(f"{name}: scores are one number a seed, got shape {array.shape}")
        if not array.size:
            raise ValueError(f"{name} has no runs; leave the task out, and say so")
        for unsound, word in ((np.isnan, "NaN"), (np.isinf, "infinite")):
            if unsound(array).any():
                run = int(np.argmax(unsound(array))) + 1
                raise ValueError(
                    f"{name}: the score of run {run} of {array.size} is {word}; leave the run "
                    "out, and say so"
                )
        found[name] = array
    return found


def _named(scores: ByTask) -> dict[str, npt.ArrayLike]:
    named = (
        dict(scores)
        if isinstance(scores, Mapping)
        else {f"task {number}": values for number, values in enumerate(scores, start=1)}
    )
    if not named:
        raise ValueError("there are no scores: give at least one task")
    return named


def _row(scores: ByTask) -> tuple[FloatArray, Runs]:
    tasks = list(by_task(scores).values())
    return np.concatenate(tasks), Runs(np.array([task.size for task in tasks]))


def _table(
    curves: Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike],
) -> tuple[FloatArray, Runs]:
    """Return all curves as (steps, runs)."""
    tasks = {name: np.asarray(c, dtype=np.float64) for name, c in _named(curves).items()}
    steps = {task.shape[-1:] for task in tasks.values()}
    for name, task in tasks.items():
        if task.ndim != 2 or not len(task):
            raise ValueError(f"{name}: curves are (seeds, steps), got shape {task.shape}")
        if np.isinf(task).any():
            raise ValueError(f"{name}: a value of the curves is infinite; leave the run out")
    if len(steps) > 1:
        raise ValueError("the tasks' curves have different numbers of steps; put them on one grid")
    rows = np.concatenate(list(tasks.values()))
    return np.ascontiguousarray(rows.T), Runs(np.array([len(task) for task in tasks.values()]))


def paired(one: ByTask, other: ByTask) -> list[tuple[FloatArray, FloatArray]]:
    """Return the scores of both sides task by task."""
    first, second = by_task(one), by_task(other)
    if lonely := sorted(first.keys() ^ second.keys()):
        raise ValueError(
            f"only one side has scores on {', '.join(lonely)}; compare on the tasks of both"
        )
    return [(first[name], second[name]) for name in first]
