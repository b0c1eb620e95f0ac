"""The means of curves over seeds with the shading around them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hadamard.report.data.series import FloatArray
from hadamard.report.statistics.estimates import (
    Band,
    aggregate_curve,
    mean_curve,
    report_generator,
    without_interval,
)


def aggregated_seeds(curves: Mapping[str, FloatArray], aggregation: str, shading: str) -> Band:
    """Aggregate each seed over tasks; return the mean over seeds with its shading."""
    count = min(len(values) for values in curves.values())
    per_seed = np.array(
        [
            aggregate_curve(
                {task: values[seed : seed + 1] for task, values in curves.items()},
                aggregation,
                rng=report_generator(),
                resamples=1,
            ).value
            for seed in range(count)
        ]
    )
    return seed_band(per_seed, shading)


def seed_band(values: FloatArray, shading: str) -> Band:
    """Return the mean over seeds of (seeds, steps), with its shading.

    There is no mean at steps where a seed has no value.

    Examples:
        >>> band = seed_band(np.array([[1.0], [3.0]]), "deviation")
        >>> float(band.value[0]), round(float(band.high[0]), 2)
        (2.0, 3.41)
    """
    if shading == "interval":
        return mean_curve(values)
    mean = values.mean(axis=0)
    if len(values) < 2:
        return without_interval(mean)
    half_width = values.std(axis=0, ddof=1)
    if shading == "error":
        half_width = half_width / np.sqrt(len(values))
    return Band(mean, mean - half_width, mean + half_width)
