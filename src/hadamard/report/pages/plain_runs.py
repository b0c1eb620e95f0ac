"""Runs whose names are safe on a page, whatever their files contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from hadamard.core.identity import REQUIRED
from hadamard.core.typed import shortened
from hadamard.report.data.imported import ImportedCurve
from hadamard.report.data.run_data import RunData
from hadamard.report.draw.plain_text import LONGEST, plain, visible

_MOST_SETTINGS = 500
_MOST_ITEMS = 50
_LONGEST_SENTENCE = 1_000


def plain_runs(runs: Sequence[RunData]) -> list[RunData]:
    """Return runs whose names and settings are bounded lines of visible characters."""
    return [
        replace(
            run,
            name=plain(run.name),
            label=plain(run.label),
            algorithm=plain(run.algorithm),
            spec=_plain_settings(run.spec),
            versions=_plain_settings(run.versions),
            commit=None if run.commit is None else plain(run.commit),
            machine=plain(run.machine),
            layers={plain(name): measures for name, measures in run.layers.items()},
            representation=plain(run.representation),
            troubles=plain_sentences(run.troubles),
        )
        for run in runs
    ]


def plain_sentences(sentences: Sequence[str]) -> list[str]:
    """Return sentences of visible characters, long ones cut."""
    return [
        text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"
        for text in map(visible, sentences)
    ]


def plain_curves(curves: Sequence[ImportedCurve]) -> list[ImportedCurve]:
    """Return other methods' curves with plain names."""
    return [replace(curve, method=plain(curve.method), env=plain(curve.env)) for curve in curves]


def _plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by plain names with plain values; of very many, only the first."""
    used = dict(islice(settings.items(), _MOST_SETTINGS))
    used |= {name: settings[name] for name in REQUIRED if name in settings}
    return {plain(name): _plain_value(value) for name, value in used.items()}


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list | tuple) and not any(isinstance(v, list | dict) for v in value):
        items = [_plain_value(item) for item in value[:_MOST_ITEMS]]
        further = len(value) - len(items)
        return [*items, f"… {further} more"] if further else items
    return plain(shortened(value, LONGEST))
