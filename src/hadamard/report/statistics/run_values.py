"""The measures of one run: over training, and at a step."""

from __future__ import annotations

import numpy as np

from hadamard.report.data.run_data import RunData
from hadamard.report.data.series import Series

SCORE = "score"


def measure_series(run: RunData, measure: str) -> Series:
    """Return a measure of a run over training.

    The last diagnosis may come a rollout after the budget; it counts as that of the budget's end.
    """
    if measure == SCORE:
        return run.score_series()
    steps = np.minimum(run.health_steps, run.horizon)
    if measure == "dormant_excess":
        live, dormant = run.health["live_contribution"], run.health["dormant_contribution"]
        with np.errstate(divide="ignore", invalid="ignore"):
            return Series(steps, (dormant - live) / live).finite()
    return Series(steps, run.health[measure]).finite()


def value_at(run: RunData, measure: str, step: float) -> float:
    """Return the value that a measure of a run had at a step."""
    if measure == "steps_per_second":
        return run.steps_per_second
    if measure == SCORE and run.finished and run.horizon <= step:
        return run.final("score")  # exact; the series only has some points along the budget
    series = measure_series(run, measure).until(step)
    return float(series.values[-1]) if series.values.size else float("nan")
