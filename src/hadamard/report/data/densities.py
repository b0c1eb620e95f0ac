"""Densities of neurons over training: what of them is recorded, and how they are drawn again.

A density is recorded by its levels at `POINTS` places, which is enough for a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hadamard.core.run import Run
from hadamard.report.data import rows
from hadamard.report.data.fields import Fields, WrongField
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.data.numbers import rounded
from hadamard.report.data.series import FloatArray

POINTS = 48
"""At how many places the density of a neuron is recorded."""
_LEVELS = 999


class Snapshot(NamedTuple):
    """The densities of a few neurons of the representation at one step."""

    step: int
    grid: KdeGrid


def thinned_densities(folder: Path, budget: int) -> list[dict[str, Any]]:
    """Return the densities after a tenth of the budget and the last; or the last, or none."""
    path = rows.stream_path(Run(folder), "kde", [])
    last = rows.last_row(path) if path else {}
    if path is None or not last:
        return []
    # The last layer of a snapshot is the representation.
    first = rows.first_row(
        path, lambda row: row.get("layer") == last.get("layer") and 10 * row["step"] >= budget
    )
    first = first or last  # the run did not come that far yet
    thinned = []
    for row in (first, last) if first["step"] < last["step"] else (last,):
        try:
            record = _thinned(row)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            continue  # not written by this version
        if record is not None:
            thinned.append(record)
    return thinned


def _thinned(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a row of kde.jsonl without the neurons whose density is unusable; None if all are."""
    places = np.array(row["places"], dtype=np.float64)
    density = np.array(row["density"], dtype=np.float64)
    usable = np.isfinite(places).all(axis=1) & np.isfinite(density).all(axis=1)
    usable &= density.max(axis=1) > 0
    if not usable.any() or not rows.is_step(row["step"]):
        return None
    curves = [_curve(*curve) for curve in zip(places[usable], density[usable], strict=True)]
    return {
        "step": int(row["step"]),
        "layer": str(row["layer"]),
        "title": str(row["title"]),
        "bounded": bool(row["bounded"]),
        "neurons": np.array(row["neurons"], dtype=np.int64)[usable].tolist(),
        "dormant": np.array(row["dormant"], dtype=np.bool_)[usable].tolist(),
        **{key: [curve[key] for curve in curves] for key in curves[0]},
    }


def _curve(places: FloatArray, density: FloatArray) -> dict[str, Any]:
    """Return a density at `POINTS` evenly spaced places, the nearest of them moved to the peak."""
    peak_place, height = float(places[density.argmax()]), float(density.max())
    low, peak, high = (rounded(value) for value in (places[0], peak_place, places[-1]))
    sampled = np.interp(_places(low, high, peak_place), places, density)
    return {
        "low": low,
        "high": high,
        "peak": peak,
        "height": rounded(height),
        "levels": np.rint(_LEVELS * sampled / height).astype(np.int64).tolist(),
    }


def _places(low: float, high: float, peak: float) -> FloatArray:
    """Return the places at which a thinned density is recorded."""
    even = np.linspace(low, high, POINTS)
    even[np.abs(even - peak).argmin()] = peak
    return even


def snapshot(fields: Fields) -> Snapshot:
    """Return thinned densities in the form in which they are drawn, every field checked."""
    neurons = fields.integers("neurons")
    curves = [fields.numbers(key) for key in ("low", "high", "peak", "height")]
    levels = fields.values.get("levels")
    dormant = fields.flags("dormant")
    counts = {len(neurons), len(dormant), *map(len, curves)}
    if not isinstance(levels, list) or counts != {len(levels)} or not levels:
        raise WrongField("densities are not of the same neurons throughout")
    low, high, peak, height = curves
    if not np.isfinite(curves).all() or not (height > 0).all():
        raise WrongField("densities have no range or no height")
    places = np.array([_places(*ends) for ends in zip(low, high, peak, strict=True)])
    table = np.array([Fields({"levels": row}, "densities").numbers("levels") for row in levels])
    if table.shape != places.shape:
        raise WrongField(f"densities.levels has not {POINTS} places for every neuron")
    grid = KdeGrid(
        neurons=neurons,
        places=places,
        density=table * height[:, None] / _LEVELS,
        dormant=np.array(dormant, dtype=np.bool_),
        bounded=fields.flag("bounded"),
        title=fields.text("title"),
    )
    return Snapshot(fields.integer("step"), grid)
