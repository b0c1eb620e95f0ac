"""Tables of results and of runs: what came out, what was run on what, and how to repeat it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.runs import FloatArray, RunData, Section
from hadamard.report.measures import HEALTH, MEASURES, SCORES, number
from hadamard.report.pages.comparison import command
from hadamard.report.pages.reading import finite
from hadamard.report.pages.tables import Table
from hadamard.report.statistics.estimates import Estimate, mean_curve
from hadamard.report.statistics.together import Together

_SHOWN = ("score", *HEALTH, "steps_per_second")


def mean_of(values: FloatArray, *, share: bool = False) -> Estimate:
    """Return the mean of one number a seed, with Student's 95 % interval.

    Of a share, the interval ends at 0 and 1.
    """
    if not values.size:
        return Estimate(float("nan"), float("nan"), float("nan"))
    mean, low, high = (float(bound[0]) for bound in mean_curve(values[:, None]))
    return Estimate(mean, max(low, 0.0), min(high, 1.0)) if share else Estimate(mean, low, high)


def told(estimate: Estimate, text: Callable[[float], str] = number) -> str:
    """Write an estimate with its interval, – if there is none."""
    value, low, high = estimate
    if not math.isfinite(value):
        return "–"
    return f"{text(value)} ({text(low)} to {text(high)})" if math.isfinite(low) else text(value)


def results(found: Sequence[Section]) -> Table:
    """Return the final numbers of every variant on every task."""
    data: dict[str, list[Any]] = {}
    shown: dict[str, list[str]] = {}

    def add(columns: dict[str, list[Any]], name: str, value: Any) -> None:
        columns.setdefault(name, []).append(value)

    for section in found:
        for variant in section.variants:
            for columns in (data, shown):
                add(columns, "task", section.env)
                add(columns, "algorithm", section.algorithm)
                add(columns, "variant", variant.label)
            seeds, finished = len(variant.runs), len(variant.finished)
            add(shown, "seeds", str(seeds) if seeds == finished else f"{finished} of {seeds}")
            add(data, "score_of", SCORES[variant.score_kind].of)
            add(data, "seeds", seeds)
            add(data, "finished", finished)
            for measure in _SHOWN:
                text = MEASURES[measure].text
                values = finite(variant.finals(measure))
                estimate = mean_of(values, share=MEASURES[measure].share)
                # The interval of what is not compared would only be in the way.
                bare = measure == "steps_per_second"
                add(shown, MEASURES[measure].column,
                    told(Estimate(estimate.value, *2 * [math.nan]), text) if bare
                    else told(estimate, text))  # fmt: skip
                for bound, value in zip(Estimate._fields, estimate, strict=True):
                    add(data, measure if bound == "value" else f"{measure}_{bound}", value)
                add(data, f"{measure}_seeds", int(values.size))
    several = len({section.algorithm for section in found}) > 1
    if not several:
        del shown["algorithm"]
    shown = {name: column for name, column in shown.items() if set(column) != {"–"}}
    caption = "Final numbers: means over the finished seeds, with 95 % intervals (Student's t)"
    return Table("results", caption, shown, data)


def aggregates(one: Together, estimates: Mapping[str, Mapping[str, Estimate]]) -> Table:
    """Return the aggregates of every variant; ``estimates[aggregate's label][variant]``."""
    labels = list(one.scores)
    differences, improvements = one.differences, one.improvements
    without = dict.fromkeys(one.not_compared, "not compared") | {one.baseline: "baseline"}
    shown = {
        "variant": labels,
        **{name: [told(of[label]) for label in labels] for name, of in estimates.items()},
        f"P(better than {one.baseline})": [
            told(improvements[label]) if label in improvements else without[label]
            for label in labels
        ],
    }
    data: dict[str, list[Any]] = {
        "algorithm": [one.algorithm] * len(labels),
        "normalisation": [one.normalisation] * len(labels),
        "tasks": [len(one.tasks)] * len(labels),
        "variant": labels,
        "runs": [sum(map(len, one.scores[label].values())) for label in labels],
    }
    for key, of in zip(one.shown, estimates.values(), strict=True):
        for bound in Estimate._fields:
            name = key if bound == "value" else f"{key}_{bound}"
            data[name] = [getattr(of[label], bound) for label in labels]
    for bound in Estimate._fields:
        name = "improvement" if bound == "value" else f"improvement_{bound}"
        data[name] = [
            getattr(improvements[label], bound) if label in improvements else None
            for label in labels
        ]
    for bound in Estimate._fields:
        name = "difference" if bound == "value" else f"difference_{bound}"
        data[name] = [
            getattr(differences[label].estimate, bound) if label in differences else None
            for label in labels
        ]
    data["against_baseline"] = [
        differences[label].outcome if label in differences else without[label] for label in labels
    ]
    caption = f"{algorithm_name(one.algorithm)}, {len(one.tasks)} tasks: {one.unit}, 95 % intervals"
    return Table(f"aggregates-{one.algorithm}", caption, shown, data)


def runs_table(runs: Sequence[RunData], defaults: Mapping[tuple[str, str], Any]) -> Table:
    """Return one line a run."""
    shown = {
        "variant": [run.label for run in runs],
        "algorithm": [run.algorithm for run in runs],
        "task": [run.env for run in runs],
        "seed": [str(run.seed) for run in runs],
        "state": [
            "finished" if run.finished else f"{min(run.reached / run.horizon, 1):.0%} done"
            for run in runs
        ],
        "score": [_or_dash(run.final("score"), number) for run in runs],
        "device": [run.machine or "–" for run in runs],
        MEASURES["steps_per_second"].column: [
            _or_dash(run.steps_per_second, number) for run in runs
        ],
        "wall time": [_or_dash(run.seconds, _duration) for run in runs],
        "commit": [_short_commit(run.commit) for run in runs],
        "folder": [run.name for run in runs],
    }
    versions = dict.fromkeys(name for run in runs for name in run.versions)
    data: dict[str, list[Any]] = {
        "path": [str(run.path) for run in runs],
        "algorithm": shown["algorithm"],
        "task": shown["task"],
        "variant": shown["variant"],
        "seed": [run.seed for run in runs],
        "finished": [run.finished for run in runs],
        "steps": [run.steps for run in runs],
        "reached": [run.reached for run in runs],
        "score": [run.final("score") for run in runs],
        "score_of": [SCORES[run.score_kind].of for run in runs],
        **{
            name: [run.final(name) for run in runs]
            for name in ("training_score", "greedy_score", *HEALTH, "full_rank")
        },
        "representation": [run.representation for run in runs],
        "protocol": [run.protocol for run in runs],
        "device": [run.machine for run in runs],
        "steps_per_second": [run.steps_per_second for run in runs],
        "seconds": [run.seconds for run in runs],
        "commit": [run.commit or "" for run in runs],
        **{f"version {name}": [run.versions.get(name, "") for run in runs] for name in versions},
        "command": [command(run, defaults.get((run.algorithm, run.env))) for run in runs],
    }
    return Table("runs", "The runs", shown, data)


def _or_dash(value: float, text: Callable[[float], str]) -> str:
    return text(value) if np.isfinite(value) else "–"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _short_commit(commit: str | None) -> str:
    if not commit:
        return "–"
    name, _, dirty = commit.partition("-")
    return f"{name[:9]}{' (changed)' if dirty else ''}"
