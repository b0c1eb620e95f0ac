"""Which measure predicts later learning: rank correlations with what networks relearned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from hadamard.report.compositions import Composed, Drawing
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.relearned import TARGETS
from hadamard.report.data.run_data import RunData
from hadamard.report.draw.aggregates import forest
from hadamard.report.measures import MEASURES
from hadamard.report.pages.tables import Table, estimate_text
from hadamard.report.statistics.estimates import Estimate, report_generator
from hadamard.report.statistics.panel import PanelRuns
from hadamard.report.statistics.rank_correlation import Point, rank_correlation
from hadamard.text import counted

PREDICTORS = (
    "dormant_fraction",
    "tau_dormant_fraction",
    "gradient_dormant_fraction",
    "hidden_bias_share",
    "effective_rank",
    "entropy_rank",
    "stable_rank",
    "ntk_rank",
    "weight_norm",
    "gradient_norm",
    "update_ratio",
    "policy_churn",
    "value_churn",
)
"""The measures that are compared, in the order of the figure."""
_FROM_TRAINING = ("update_ratio",)
"""Measures that only training can take: they are from the diagnosis at the checkpoint's step."""
_PLACES = 20
"""Places of training that are told apart: networks are compared at the same place only."""


def compose(drawing: Drawing) -> Composed:
    """Draw each measure's rank correlation with the later learning, by algorithm and target."""
    estimates: dict[tuple[str, str], dict[str, Estimate]] = {}
    columns: dict[str, dict[str, Estimate]] = {}
    for algorithm, data in drawing.panels.items():
        for target, words in TARGETS.items():
            values = {}
            for measure in PREDICTORS:
                points = list(_points(data, measure, target))
                estimate = rank_correlation(points, rng=report_generator())
                if np.isfinite(estimate.value):
                    values[measure] = estimate
            if values:
                estimates[algorithm, target] = values
                columns[f"{algorithm_name(algorithm)}: {words}"] = {
                    MEASURES[measure].column: estimate for measure, estimate in values.items()
                }
    footer = " ".join(_counts(algorithm, data) for algorithm, data in drawing.panels.items())
    return Composed(
        partial(forest, columns, "rank correlation with learning", footer),
        "Spearman's rank correlation of each measure with what the same network learned afterwards "
        "in a fixed number of updates (share of the targets' variance explained): random targets "
        "on its own observations, and the returns of another game. Networks are compared within a "
        "game and a place of training, and the correlations averaged; above 0, networks with more "
        "of the measure learned more. Bands: 95 % intervals of a bootstrap that draws games, then "
        "runs within a game, all checkpoints of a run together; with one game it draws runs only. "
        "A correlation says nothing about causes, and part of it is due to the variants compared.",
        [_table(drawing, estimates)],
        (),
        (),
    )


def _runs(data: PanelRuns) -> Iterator[tuple[str, str, RunData]]:
    """Yield the runs that relearned, each with its arm and its task."""
    for label, by_task in data.runs.items():
        for task, runs in by_task.items():
            for run in runs:
                if run.relearned is not None and len(run.relearned.steps):
                    yield label, task, run


def _points(data: PanelRuns, measure: str, target: str) -> Iterator[Point]:
    """Yield a measure and the later learning of every network that has both."""
    for label, task, run in _runs(data):
        relearned = run.relearned
        assert relearned is not None
        learned = relearned.learned.get(target)
        if learned is None:
            continue
        for index, step in enumerate(relearned.steps.tolist()):
            if measure in _FROM_TRAINING:
                value = _recorded(run, measure, step)
            else:
                column = relearned.measures.get(measure)
                value = np.nan if column is None else float(column[index])
            place = str(round(_PLACES * step / run.steps))
            yield Point(task, place, f"{label}, seed {run.seed}", value, float(learned[index]))


def _recorded(run: RunData, measure: str, step: int) -> float:
    """Return what a run's diagnosis at a step recorded of the whole network; NaN without one."""
    (places,) = np.nonzero(run.health_steps == step)
    return float(run.network[measure][places[-1]]) if places.size else np.nan


def _counts(algorithm: str, data: PanelRuns) -> str:
    """Say how many networks of how many runs and games there are, and how they learned."""
    runs = list(_runs(data))
    if not runs:
        return f"{algorithm_name(algorithm)}: no run has relearned; see hadamard relearn."
    networks = sum(len(run.relearned.steps) for _, _, run in runs if run.relearned is not None)
    games = len({task for _, task, _ in runs})
    budgets = {tuple(sorted(r.relearned.budget.items())) for _, _, r in runs if r.relearned}
    sentence = (
        f"{algorithm_name(algorithm)}: {counted(networks, 'network')} of "
        f"{counted(len(runs), 'run')} on {counted(games, 'game')}."
    )
    if len(budgets) > 1:
        return f"{sentence} They relearned with {len(budgets)} different budgets: make one again."
    return sentence


def _table(drawing: Drawing, estimates: dict[tuple[str, str], dict[str, Estimate]]) -> Table:
    shown: dict[str, list[str]] = {}
    data: dict[str, list[object]] = {}
    for (algorithm, target), values in estimates.items():
        panel = drawing.panels[algorithm]
        for measure, estimate in values.items():
            points = [
                point
                for point in _points(panel, measure, target)
                if np.isfinite(point.x) and np.isfinite(point.y)
            ]
            numbers: dict[str, object] = {
                "algorithm": algorithm,
                "target": target,
                "measure": measure,
                "rank_correlation": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "networks": len(points),
                "runs": len({(point.cluster, point.unit) for point in points}),
                "games": len({point.cluster for point in points}),
            }
            cells = {
                "algorithm": algorithm_name(algorithm),
                "target": TARGETS[target],
                "measure": MEASURES[measure].name,
                "rank correlation": estimate_text(estimate, _signed, no_interval=" (no interval)"),
                **{name: f"{numbers[name]:,}" for name in ("networks", "runs", "games")},
            }
            for name, text in cells.items():
                shown.setdefault(name, []).append(text)
            for name, number in numbers.items():
                data.setdefault(name, []).append(number)
    caption = (
        f"{drawing.experiment.place}: rank correlation of measures with later learning, with 95 % "
        "intervals over games and runs"
    )
    return Table("numbers", caption, shown, data)


def _signed(value: float) -> str:
    return f"{value:+.2f}"
