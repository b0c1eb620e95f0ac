"""Dormant neurons without and with HR, measured and predicted by the theory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hadamard.report.data.series import FloatArray
from hadamard.report.statistics.estimates import (
    Estimate,
    estimate,
    mean_estimate,
    report_generator,
)
from hadamard.theory import predicted_dormant

Activation = Literal["relu", "tanh"]


@dataclass(frozen=True)
class Dormancy:
    """The fraction of dormant neurons of one variant without and with HR."""

    without: Estimate
    predicted: float
    """The fraction with HR that the theory predicts from the fraction without."""
    measured: Estimate
    """The fraction with HR."""

    @property
    def predicted_change(self) -> float | None:
        """The predicted change relative to the fraction without HR; None if that is 0."""
        return self._change(self.predicted)

    @property
    def measured_change(self) -> float | None:
        """The measured change relative to the fraction without HR; None if that is 0."""
        return self._change(self.measured.value)

    def _change(self, fraction: float) -> float | None:
        before = self.without.value
        return (fraction - before) / before if before else None


def task_dormancy(without: FloatArray, with_hr: FloatArray, activation: Activation) -> Dormancy:
    """Return the dormancy on one task, given one fraction per seed."""
    before, after = mean_estimate(without, share=True), mean_estimate(with_hr, share=True)
    return Dormancy(before, predicted_dormant(before.value, activation), after)


def mean_dormancy(
    without: Mapping[str, FloatArray], with_hr: Mapping[str, FloatArray], activation: Activation
) -> Dormancy:
    """Return the mean dormancy over tasks, given one fraction per seed for each task.

    The prediction is the mean of the tasks' predictions, not the prediction from their mean: the
    theory is not linear.
    """
    before, after = (
        estimate(fractions, "mean", rng=report_generator()) for fractions in (without, with_hr)
    )
    predictions = [predicted_dormant(float(p.mean()), activation) for p in without.values()]
    return Dormancy(before, float(np.mean(predictions)), after)
