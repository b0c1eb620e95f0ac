"""The tables of a report: final numbers, aggregates over tasks, and the runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section
from hadamard.report.measures import FURTHER, HEALTH, MEASURES, NETWORK, SCORES, number
from hadamard.report.pages.report_files import slug
from hadamard.report.pages.run_settings import command
from hadamard.report.pages.tables import Table, estimate_text
from hadamard.report.statistics.estimates import Estimate, mean_estimate
from hadamard.report.statistics.multi_task import MultiTaskScores
from hadamard.report.statistics.task_scores import finite
from hadamard.text import duration

_SHOWN_MEASURES = ("score", *HEALTH, "steps_per_second")


def results_table(sections: Sequence[Section]) -> Table:
    """Return the final numbers of every variant on every task."""
    caption = "Final numbers: means over the finished seeds, with 95 % intervals (Student's t)"
    return _finals_table("results", caption, sections, _SHOWN_MEASURES)


def further_table(sections: Sequence[Section]) -> Table | None:
    """Return the further measures of the representation and the network, None without any."""
    caption = "Further measures at the end: means over the finished seeds, with 95 % intervals"
    table = _finals_table("further-measures", caption, sections, (*FURTHER, *NETWORK))
    shown = {MEASURES[key].column for key in (*FURTHER, *NETWORK)}
    return table if shown & set(table.text) else None


def _finals_table(
    name: str, caption: str, sections: Sequence[Section], measures: Sequence[str]
) -> Table:
    """Return measures at the end of every variant on every task."""
    data: dict[str, list[Any]] = {}
    text_columns: dict[str, list[str]] = {}
    for section in sections:
        for variant in section.variants:
            keys = {"task": section.env, "algorithm": section.algorithm, "variant": variant.label}
            seeds, finished = len(variant.runs), len(variant.finished)
            seeds_text = str(seeds) if seeds == finished else f"{finished} of {seeds}"
            _append(text_columns, keys | {"seeds": seeds_text})
            score_of = SCORES[variant.score_kind].of
            _append(data, keys | {"score_of": score_of, "seeds": seeds, "finished": finished})
            for key in measures:
                measure, values = MEASURES[key], finite(variant.finals(key))
                estimate = mean_estimate(values, share=measure.share)
                _append(data, _bounds(key, estimate) | {f"{key}_seeds": int(values.size)})
                if key == "steps_per_second":  # not compared, so it needs no interval
                    estimate = Estimate(estimate.value, math.nan, math.nan)
                _append(text_columns, {measure.column: estimate_text(estimate, measure.text)})
    if len({section.algorithm for section in sections}) == 1:
        del text_columns["algorithm"]
    text_columns = {name: column for name, column in text_columns.items() if set(column) != {"–"}}
    return Table(name, caption, text_columns, data)


def _append(columns: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    """Append the values of a row to columns, which are added where they are missing."""
    for name, value in row.items():
        columns.setdefault(name, []).append(value)


def _bounds(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as columns: its name, and its name with _low and _high."""
    value, low, high = estimate or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def aggregates_table(
    scores: MultiTaskScores, estimates: Mapping[str, Mapping[str, Estimate]]
) -> Table:
    """Return the aggregates of every variant.

    ``estimates`` are by the head of the column and by variant, in the order of
    ``scores.shown_aggregates``.
    """
    labels = list(scores.scores)
    differences, improvements = scores.differences, scores.improvements
    without_estimate = dict.fromkeys(scores.not_compared, "not compared") | {
        scores.baseline: "baseline"
    }
    text_columns = {
        "variant": labels,
        **{
            head: [estimate_text(by_label[label]) for label in labels]
            for head, by_label in estimates.items()
        },
        f"P(better than {scores.baseline})": [
            estimate_text(improvements[label]) if label in improvements else without_estimate[label]
            for label in labels
        ],
    }
    data: dict[str, list[Any]] = {}
    for label in labels:
        row = {
            "algorithm": scores.algorithm,
            "normalization": scores.normalization,
            "tasks": len(scores.tasks),
            "variant": label,
            "runs": sum(map(len, scores.scores[label].values())),
        }
        for key, by_label in zip(scores.shown_aggregates, estimates.values(), strict=True):
            row |= _bounds(key, by_label[label])
        row |= _bounds("improvement", improvements.get(label))
        difference = differences.get(label)
        row |= _bounds("difference", difference.estimate if difference else None)
        row["against_baseline"] = difference.outcome if difference else without_estimate[label]
        _append(data, row)
    caption = (
        f"{algorithm_name(scores.algorithm)}, {len(scores.tasks)} tasks: {scores.unit}, "
        "95 % intervals"
    )
    return Table(f"aggregates-{slug(scores.algorithm)}", caption, text_columns, data)


def runs_table(
    runs: Sequence[RunData], defaults: Mapping[tuple[str, str], Mapping[str, Any] | None]
) -> Table:
    """Return one row per run; ``defaults`` are specs by algorithm and environment."""
    text_columns = {
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
        "wall time": [_or_dash(run.seconds, duration) for run in runs],
        "commit": [_short_commit(run.commit) for run in runs],
        "folder": [run.name for run in runs],
    }
    versions = dict.fromkeys(name for run in runs for name in run.versions)
    data: dict[str, list[Any]] = {
        "path": [str(run.path) for run in runs],
        "algorithm": text_columns["algorithm"],
        "task": text_columns["task"],
        "variant": text_columns["variant"],
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
    return Table("runs", "The runs", text_columns, data)


def _or_dash(value: float, text: Callable[[float], str]) -> str:
    return text(value) if np.isfinite(value) else "–"


def _short_commit(commit: str | None) -> str:
    if not commit:
        return "–"
    name, _, dirty = commit.partition("-")
    return f"{name[:9]}{' (changed)' if dirty else ''}"
