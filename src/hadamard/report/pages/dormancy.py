"""The paper's Table 1: dormant neurons without HR, and with it as predicted and as measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.sections import Section
from hadamard.report.data.series import FloatArray
from hadamard.report.measures import percent
from hadamard.report.pages.tables import Table, estimate_text
from hadamard.report.statistics.dormancy import (
    Activation,
    Dormancy,
    mean_dormancy,
    task_dormancy,
)
from hadamard.report.statistics.task_scores import finite

_CAPTION = (
    "Dormant neurons at the end: without HR (p), with HR as the theory predicts from it (tanh p^2, "
    "ReLU 2p - p^2), and as measured; 95 % intervals"
)
_BOUNDS = {"": "value", "_low": "low", "_high": "high"}


@dataclass
class _Pair:
    """The final dormant fractions with HR and with the ordinary layer, by task."""

    algorithm: str
    variant: str
    activation: Activation
    without: dict[str, FloatArray]
    with_hr: dict[str, FloatArray]

    def rows(self) -> Iterator[_Row]:
        for task, without in self.without.items():
            dormancy = task_dormancy(without, self.with_hr[task], self.activation)
            yield _Row(self.algorithm, self.variant, task, dormancy)
        if len(self.without) > 1:
            dormancy = mean_dormancy(self.without, self.with_hr, self.activation)
            yield _Row(self.algorithm, self.variant, f"mean of {len(self.without)} tasks", dormancy)


@dataclass(frozen=True)
class _Row:
    algorithm: str
    variant: str
    task: str
    dormancy: Dormancy


def dormancy_table(sections: Sequence[Section]) -> Table | None:
    """Return the table of all HR variants whose activation the theory covers; None without any."""
    rows = [row for pair in _pairs(sections) for row in pair.rows()]
    if not rows:
        return None
    data = {
        "algorithm": [row.algorithm for row in rows],
        "variant": [row.variant for row in rows],
        "task": [row.task for row in rows],
        **{
            f"without{suffix}": [getattr(row.dormancy.without, bound) for row in rows]
            for suffix, bound in _BOUNDS.items()
        },
        "predicted": [row.dormancy.predicted for row in rows],
        **{
            f"measured{suffix}": [getattr(row.dormancy.measured, bound) for row in rows]
            for suffix, bound in _BOUNDS.items()
        },
        "predicted_change": [row.dormancy.predicted_change for row in rows],
        "measured_change": [row.dormancy.measured_change for row in rows],
    }
    text_columns = {
        "algorithm": [algorithm_name(row.algorithm) for row in rows],
        "variant": [row.variant for row in rows],
        "task": [row.task for row in rows],
        "without HR": [estimate_text(row.dormancy.without, percent) for row in rows],
        "predicted": [percent(row.dormancy.predicted) for row in rows],
        "with HR": [estimate_text(row.dormancy.measured, percent) for row in rows],
        "predicted change": [_change_text(row.dormancy.predicted_change) for row in rows],
        "change": [_change_text(row.dormancy.measured_change) for row in rows],
    }
    if len(set(text_columns["algorithm"])) == 1:
        del text_columns["algorithm"]
    return Table("dormancy", _CAPTION, text_columns, data)


def _pairs(sections: Sequence[Section]) -> list[_Pair]:
    pairs: dict[tuple[str, str, Activation], _Pair] = {}
    for section in sections:
        for variant in section.variants:
            ordinary, spec = section.without_layer(variant), variant.runs[0].spec
            activation = spec["net.activation"]
            if ordinary is None or spec["net.layer"] != "hadamard":
                continue
            if activation not in ("relu", "tanh"):
                continue
            without, with_hr = (finite(v.finals("dormant_fraction")) for v in (ordinary, variant))
            if without.size and with_hr.size:
                key = section.algorithm, variant.label, activation
                pair = pairs.setdefault(key, _Pair(*key, {}, {}))
                pair.without[section.env], pair.with_hr[section.env] = without, with_hr
    return list(pairs.values())


def _change_text(change: float | None) -> str:
    return "–" if change is None else f"{100 * change:+.0f} %"
