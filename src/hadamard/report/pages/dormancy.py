"""The paper's Table 1: dormant neurons without HR, predicted and measured with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.runs import FloatArray, Section
from hadamard.report.measures import percent
from hadamard.report.pages.reading import finite
from hadamard.report.pages.run_tables import mean_of, told
from hadamard.report.pages.tables import Table
from hadamard.report.statistics import estimates as stats
from hadamard.report.statistics.estimates import Estimate
from hadamard.theory import predicted_dormant

_ByTask = dict[str, tuple[FloatArray, FloatArray]]
_CAPTION = (
    "Dormant neurons at the end: without HR (p), with HR as the theory predicts from it (tanh p^2, "
    "ReLU 2p - p^2), and as measured; 95 % intervals"
)


@dataclass(frozen=True)
class _Row:
    algorithm: str
    variant: str
    task: str
    without: Estimate
    predicted: float
    measured: Estimate

    @property
    def predicted_change(self) -> float | None:
        return self._change(self.predicted)

    @property
    def measured_change(self) -> float | None:
        return self._change(self.measured.value)

    def _change(self, dormant: float) -> float | None:
        """Return a change relative to the dormancy without HR; None from nothing."""
        before = self.without.value
        return (dormant - before) / before if before else None


def dormancy_table(found: Sequence[Section]) -> Table | None:
    """Return the table, of every HR variant whose activation the theory covers; None of none."""
    rows = [row for pair, by_task in _pairs(found).items() for row in _rows(*pair, by_task)]
    if not rows:
        return None
    data = {
        "algorithm": [row.algorithm for row in rows],
        "variant": [row.variant for row in rows],
        "task": [row.task for row in rows],
        **{
            f"without{end}": [getattr(row.without, of) for row in rows] for end, of in _ENDS.items()
        },
        "predicted": [row.predicted for row in rows],
        **{
            f"measured{end}": [getattr(row.measured, of) for row in rows]
            for end, of in _ENDS.items()
        },
        "predicted_change": [row.predicted_change for row in rows],
        "measured_change": [row.measured_change for row in rows],
    }
    shown = {
        "algorithm": [algorithm_name(row.algorithm) for row in rows],
        "variant": [row.variant for row in rows],
        "task": [row.task for row in rows],
        "without HR": [told(row.without, percent) for row in rows],
        "predicted": [percent(row.predicted) for row in rows],
        "with HR": [told(row.measured, percent) for row in rows],
        "predicted change": [_signed(row.predicted_change) for row in rows],
        "change": [_signed(row.measured_change) for row in rows],
    }
    if len(set(shown["algorithm"])) == 1:
        del shown["algorithm"]
    return Table("dormancy", _CAPTION, shown, data)


_ENDS = {"": "value", "_low": "low", "_high": "high"}


def _pairs(found: Sequence[Section]) -> Mapping[tuple[str, str, Literal["relu", "tanh"]], _ByTask]:
    """Return the final dormant fractions without and with HR, by task."""
    pairs: dict[tuple[str, str, Literal["relu", "tanh"]], _ByTask] = {}
    for section in found:
        for variant in section.variants:
            plain, spec = section.without_layer(variant), variant.runs[0].spec
            activation = spec["net.activation"]
            if plain is None or spec["net.layer"] != "hadamard":
                continue
            if activation not in ("relu", "tanh"):
                continue
            before, after = (finite(v.finals("dormant_fraction")) for v in (plain, variant))
            if before.size and after.size:
                pair = section.algorithm, variant.label, activation
                pairs.setdefault(pair, {})[section.env] = before, after
    return pairs


def _rows(
    algorithm: str, variant: str, activation: Literal["relu", "tanh"], by_task: _ByTask
) -> Iterator[_Row]:
    predictions = []
    for task, (before, after) in by_task.items():
        without, measured = mean_of(before, share=True), mean_of(after, share=True)
        predictions.append(predicted_dormant(without.value, activation))
        yield _Row(algorithm, variant, task, without, predictions[-1], measured)
    if len(by_task) > 1:
        before_all, after_all = (
            stats.estimate(
                {task: sides[i] for task, sides in by_task.items()},
                "mean",
                rng=np.random.default_rng(0),
            )
            for i in range(2)
        )
        task = f"mean of {len(by_task)} tasks"
        # Not the prediction of the mean: it is no straight line.
        predicted = float(np.mean(predictions))
        yield _Row(algorithm, variant, task, before_all, predicted, after_all)


def _signed(change: float | None) -> str:
    return "–" if change is None else f"{100 * change:+.0f} %"
