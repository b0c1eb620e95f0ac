"""An untrusted record as a run: every field is checked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hadamard.core import identity, plugin_records
from hadamard.core.typed import WrongType
from hadamard.report.data.densities import Snapshot, snapshot
from hadamard.report.data.fields import Fields, WrongField
from hadamard.report.data.relearned import relearned
from hadamard.report.data.run_data import RunData
from hadamard.report.data.series import FloatArray, Series, places
from hadamard.report.data.thin import PLACES, Record
from hadamard.report.measures import NETWORK, PART_SHARES, PARTS, RECORDED, SCORES, ScoreKind


def run_with_densities(path: Path, record: Record) -> RunData:
    """Return a record that holds its densities as a run, without a label yet."""
    snapshots = [snapshot(fields) for fields in Fields(record).objects("densities")]
    return run_data(path, record, functools.partial(list, snapshots))


def run_data(path: Path, record: Record, snapshots: Callable[[], list[Snapshot]]) -> RunData:
    """Return a record as a run, without a label yet; ``snapshots`` reads its densities."""
    fields = Fields(record)
    spec = _spec(fields.fields("spec"))
    health = fields.fields("health")
    steps = health.steps("steps")
    thresholds, deltas = health.numbers("threshold"), health.numbers("delta")
    scores, finals = _scores(fields.fields("scores"), spec)
    versions = fields.fields("versions")
    return RunData(
        path=path,
        name=fields.text("name"),
        label="",
        algorithm=fields.text("algorithm"),
        spec=spec,
        versions={name: versions.text(name) for name in versions.values},
        commit=fields.text("commit") if "commit" in fields else None,
        protocol=fields.integer("protocol"),
        plugins=_plugins(fields.fields("plugins")) if "plugins" in fields else {},
        machine=fields.text("machine"),
        summary=_summary(fields),
        reached=fields.integer("reached"),
        scores=scores,
        finals=finals,
        episodes=fields.integer("episodes"),
        lost_episodes=fields.integer("lost_episodes"),
        health_steps=steps,
        layers=dict(_layer(layer, len(steps)) for layer in health.objects("layers")),
        network=_network(health, len(steps)),
        representation=health.text("representation"),
        relearned=relearned(fields.fields("relearning")) if "relearning" in fields else None,
        threshold=_last(thresholds),
        delta=_last(deltas),
        steps_per_second=fields.number("steps_per_second"),
        seconds=fields.number("seconds"),
        troubles=fields.texts("troubles"),
        read_snapshots=snapshots,
    )


def _plugins(fields: Fields) -> dict[str, Mapping[str, Any]]:
    """Check what a run says of its plugins; none of them is imported."""
    try:
        return plugin_records.recorded({"plugins": fields.values})
    except WrongType as error:
        raise WrongField(str(error)) from None


def _summary(fields: Fields) -> dict[str, float] | None:
    if "summary" not in fields:
        return None
    summary = fields.fields("summary")
    return {name: summary.number(name) for name in summary.values}


def _spec(fields: Fields) -> dict[str, Any]:
    """Check the settings that a report depends on; the others are only shown."""
    for name in ("env", *identity.VARIANT):
        fields.text(name)
    fields.integer("seed")
    fields.integer("train.steps", 1)
    for name in ("train.until", "train.greedy_envs", "train.eval_every"):
        if name in fields:
            fields.integer(name)
    return fields.values


def _scores(
    fields: Fields, spec: Mapping[str, Any]
) -> tuple[dict[ScoreKind, Series], dict[ScoreKind, float]]:
    scores: dict[ScoreKind, Series] = {}
    finals: dict[ScoreKind, float] = {}
    kinds = [kind for kind in SCORES if kind in fields or kind == "training"]
    for kind in kinds:
        recorded = fields.fields(kind)
        values = recorded.numbers("values")
        evaluated = kind == "evaluation"
        steps = recorded.steps("steps") if evaluated else places(spec["train.steps"], PLACES)
        if len(values) > len(steps) or (evaluated and len(values) < len(steps)):
            raise WrongField(f"scores.{kind} has {len(values)} values for {len(steps)} steps")
        scores[kind] = Series(steps[: len(values)], values)
        finals[kind] = recorded.number("final")
    return scores, finals


def _layer(fields: Fields, rows: int) -> tuple[str, dict[str, FloatArray]]:
    """Return a layer's name and measures."""
    name, columns = fields.text("name"), fields.fields("measures")
    measures = {key: _column(columns, key, rows, name) for key in RECORDED}
    return name, measures | _shares(measures)


def _network(health: Fields, rows: int) -> dict[str, FloatArray]:
    """Return the measures of the whole network, which older runs lack."""
    if "network" not in health:
        return {key: np.full(rows, np.nan) for key in NETWORK}
    columns = health.fields("network")
    return {key: _column(columns, key, rows, "the network") for key in NETWORK}


def _column(columns: Fields, key: str, rows: int, name: str) -> FloatArray:
    """Return a measure of every diagnosis, NaN where it is missing."""
    values = columns.numbers(key) if key in columns else np.full(rows, np.nan)
    if len(values) != rows:
        raise WrongField(f"health of {name}: {key} has {len(values)} values for {rows} rows")
    return values


def _last(values: FloatArray) -> float | None:
    return float(values[-1]) if values.size and np.isfinite(values[-1]) else None


def _shares(measures: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the parts of what the next layer receives as shares of their sum."""
    parts = np.array([measures[part] for part in PARTS])
    if np.isnan(parts[2]).all():
        parts[2] = np.where(np.isnan(parts[0]), np.nan, 0.0)  # the next layer has no bias
    total = parts.sum(axis=0)
    shares = np.divide(parts, total, out=np.where(np.isnan(parts), np.nan, 0.0), where=total > 0)
    return dict(zip(PART_SHARES, shares, strict=True))
