"""Numbers by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hadamard.report.measures import TRAINING_WINDOW

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Series(NamedTuple):
    """Numbers by step, in the order of the steps."""

    steps: IntArray
    values: FloatArray

    def smoothed(self, steps: npt.ArrayLike) -> FloatArray:
        """Return, at each step, the mean of the last 100 values up to it.

        Of all values so far while there are fewer; NaN before the first.
        """
        last = np.searchsorted(self.steps, steps, side="right")
        first = np.maximum(last - TRAINING_WINDOW, 0)
        sums = np.concatenate([[0.0], np.cumsum(self.values)])
        means = np.full(last.shape, np.nan)
        np.divide(sums[last] - sums[first], last - first, out=means, where=last > 0)
        return means

    def latest(self, steps: npt.ArrayLike) -> FloatArray:
        """Return, at each step, the last value up to it; NaN before the first."""
        last = np.searchsorted(self.steps, steps, side="right")
        return np.concatenate([[np.nan], self.values])[last]

    def by_step(self) -> Series:
        """Return one value per step: the mean of the values at that step."""
        steps, first, counts = np.unique(self.steps, return_index=True, return_counts=True)
        sums = np.add.reduceat(self.values, first) if steps.size else np.empty(0)
        return Series(steps, sums / counts)

    def averaged(self, budget: int, parts: int) -> Series:
        """Return the means of ``parts`` equal parts of the budget.

        Each is at the last step in its part that has a value; parts without one are left out.
        """
        part = np.clip((self.steps - 1) * parts // budget, 0, parts - 1)
        _, counts = np.unique(part, return_counts=True)
        ends = np.cumsum(counts)
        sums = np.add.reduceat(self.values, ends - counts) if ends.size else np.empty(0)
        return Series(self.steps[ends - 1], sums / counts)

    def finite(self) -> Series:
        """Return the series without values that are not finite."""
        finite = np.isfinite(self.values)
        return Series(self.steps[finite], self.values[finite])

    def until(self, step: float) -> Series:
        """Return the series up to a step."""
        earlier = self.steps <= step
        return Series(self.steps[earlier], self.values[earlier])


def places(budget: int, parts: int) -> IntArray:
    """Return ``parts`` equally spaced steps that end with the budget; fewer if it is tiny."""
    even = np.arange(1, parts + 1, dtype=np.int64) * budget // parts
    return np.unique(even[even > 0])
