"""The paper's compositions at its full layout, every number computed again here, independently."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from hadamard.core.config import overridden
from hadamard.core.run import PROTOCOL
from hadamard.experiments import paper
from hadamard.experiments.grid import Job
from hadamard.experiments.paper import EXPERIMENTS
from hadamard.experiments.selection import select
from hadamard.report import compositions
from hadamard.report.compositions import Composed, Drawing
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import gather
from hadamard.report.statistics.normalize import ATARI, HUMANOID
from hadamard.theory import predicted_dormant
from tests.support.paper_runs import Fake, rows, write

Values = dict[tuple[str, str, str], list["Fake"]]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[RunData], dict[str, Values]]:
    """All runs of the paper, made up, and similar runs that belong to no experiment."""
    folder = tmp_path_factory.mktemp("paper")
    values_by_experiment: dict[str, Values] = {}
    known: dict[str, Fake] = {}
    for name in EXPERIMENTS:
        by_arm: Values = {}
        for arm, job in paper.arms_and_jobs(name, "paper", "runs"):
            if job.path.name not in known:
                known[job.path.name] = Fake(job, arm.label)
                write(folder, job.path.name, known[job.path.name].record())
            key = job.algorithm, arm.label, job.spec.env
            by_arm.setdefault(key, []).append(known[job.path.name])
        values_by_experiment[name] = by_arm
    for name, changes, fields in (
        # Another learning rate, norm, place of HR, budget, protocol, seed.
        ("other-rate", {"algo.learning_rate": 3e-4}, {}),
        ("other-norm", {"net.norm": "layer"}, {}),
        ("other-place", {"net.where": "all"}, {}),
        ("longer", {"train.steps": 20_000_000}, {}),
        ("older", {}, {"protocol": 1}),
        ("more-seeds", {"seed": 5}, {}),
    ):
        job = paper.jobs("fig-dqn", "paper", "runs", seeds=1, tasks=["atari/Breakout"])[0]
        # Each of these runs would be the best by far.
        fake = Fake(Job("dqn", overridden(job.spec, changes)), "ReLU")
        fake.end = 1e9
        write(folder, name, {**fake.record(), "name": name, **fields})
    runs, troubles = gather([folder])
    assert not troubles
    return runs, values_by_experiment


Compose = Callable[..., tuple[Composed, Drawing, Values]]


@pytest.fixture(scope="module")
def composed(layout: tuple[list[RunData], dict[str, Values]]) -> Compose:
    known: dict[str, tuple[Composed, Drawing, Values]] = {}

    def make(name: str) -> tuple[Composed, Drawing, Values]:
        if name not in known:
            experiment = EXPERIMENTS[name]
            drawing = Drawing(
                experiment, select(experiment, layout[0], "paper"), experiment.shading
            )
            known[name] = compositions.compose(drawing), drawing, layout[1][name]
        return known[name]

    return make


def by_task(values: Values, algorithm: str, arm: str) -> dict[str, list[Fake]]:
    return {
        task: runs for (a, label, task), runs in values.items() if (a, label) == (algorithm, arm)
    }


def scale(values: Values, algorithm: str, task: str, normalization: str) -> tuple[float, float]:
    """Return what becomes 0 and 1."""
    if normalization == "baseline_min_max":
        curves = [run.curve() for run in values[algorithm, "ReLU", task]]
        return min(c.min() for c in curves), max(c.max() for c in curves)
    if normalization == "human_normalized":
        return ATARI[task.partition("/")[2]]
    if normalization == "success_normalized":
        return HUMANOID[task.partition("/")[2]]
    assert normalization == "per_thousand"
    return 0.0, 1000.0


def normalized(
    values: Values, algorithm: str, arm: str, normalization: str, value_of: Callable[[Fake], float]
) -> list[list[float]]:
    tasks = []
    for task, runs in by_task(values, algorithm, arm).items():
        low, high = scale(values, algorithm, task, normalization)
        tasks.append([(value_of(run) - low) / (high - low) for run in runs])
    return tasks


def aggregated(tasks: list[list[float]], how: str) -> float:
    means = sorted(sum(task) / len(task) for task in tasks)
    every = sorted(value for task in tasks for value in task)
    if how == "mean":
        return sum(means) / len(means)
    if how in ("median", "median_of_runs"):
        line = means if how == "median" else every
        half = len(line) // 2
        return line[half] if len(line) % 2 else (line[half - 1] + line[half]) / 2
    line = every if how == "iqm" else means
    cut = len(line) // 4
    middle = line[cut : len(line) - cut]
    return sum(middle) / len(middle)


_OF: dict[str, Callable[[Fake], float]] = {
    "dormant_fraction": lambda run: run.dormant,
    "effective_rank": lambda run: run.rank,
    "live_contribution": lambda run: run.live,
    "dormant_contribution": lambda run: run.dead,
}


def expected(
    values: Values, drawing: Drawing, algorithm: str, arm: str, measure: str, how: str
) -> float:
    if measure == "score":
        normalization = drawing.panels[algorithm].panel.normalization
        tasks = normalized(values, algorithm, arm, normalization, lambda run: run.final)
    else:
        tasks = [
            [_OF[measure](r) for r in runs] for runs in by_task(values, algorithm, arm).values()
        ]
    return aggregated(tasks, how)


CURVES = [name for name, e in EXPERIMENTS.items() if e.composition in ("curves", "contributions")]
TASKS = [name for name, e in EXPERIMENTS.items() if e.composition == "tasks"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_only_the_panels_own_runs_are_used(composed: Compose, name: str) -> None:
    _, drawing, values = composed(name)
    for algorithm, data in drawing.panels.items():
        for arm in data.panel.trained:
            for task in data.panel.tasks:
                names = [run.job.path.name for run in values[algorithm, arm.label, task]]
                assert [run.name for run in data.complete[arm.label][task]] == names
        assert data.tasks == list(data.panel.tasks)
        assert data.end == data.panel.steps
        assert data.seeds() == (data.panel.seeds, data.panel.seeds)


def test_what_is_left_out_is_said(composed: Compose) -> None:
    _, drawing, _ = composed("fig-dqn")
    caveats = " ".join(drawing.panels["dqn"].caveats())
    assert f"1 run is of protocol 1 left out: this version's is {PROTOCOL}" in caveats
    assert "1 run is of further seeds left out" in caveats
    assert len(drawing.panels["dqn"].caveats()) == 2


@pytest.mark.parametrize("name", CURVES)
def test_every_number_of_the_table(composed: Compose, name: str) -> None:
    result, drawing, values = composed(name)
    table = rows(result.tables[0].csv())
    measures = {(plot.algorithm, plot.measure) for plot in drawing.experiment.plots}
    if not measures:
        measures = {("dqn", "live_contribution"), ("dqn", "dormant_contribution")}
    expected_rows = [
        (algorithm, arm.label, measure, how)
        for algorithm, data in drawing.panels.items()
        for arm in data.panel.arms
        for a, measure in measures
        if a == algorithm
        for how in data.aggregations(measure)
    ]
    actual_rows = [(r["algorithm"], r["arm"], r["measure"], r["aggregation"]) for r in table]
    assert sorted(actual_rows) == sorted(expected_rows)
    for row in table:
        value = expected(
            values, drawing, row["algorithm"], row["arm"], row["measure"], row["aggregation"]
        )
        assert float(row["value"]) == pytest.approx(value, rel=1e-6), row
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
        assert int(row["tasks"]) == len(drawing.panels[row["algorithm"]].panel.tasks)


@pytest.mark.parametrize("name", CURVES)
def test_the_end_points_of_every_curve(composed: Compose, name: str) -> None:
    result, drawing, values = composed(name)
    curves = rows(result.curves_csv())
    plots = drawing.experiment.plots
    if drawing.experiment.composition == "contributions":
        ends = {row["arm"]: float(row["value"]) for row in curves}
        for label, measure in (("live neurons", "live_contribution"),
                               ("dormant neurons", "dormant_contribution")):  # fmt: skip
            value = expected(values, drawing, "dqn", "tanh", measure, "mean")
            assert ends[label] == pytest.approx(value, rel=1e-6)
        return
    assert len(result.charts) == len(plots)
    for plot, chart in zip(plots, result.charts, strict=True):
        data = drawing.panels[plot.algorithm]
        arms = [arm.label for arm in plot.arms or data.panel.arms]
        assert [line.label for line in chart.lines] == arms
        for line in chart.lines:
            how = data.aggregations(plot.measure)[0]
            if plot.measure == "score":
                # The curve's own last value, which of evaluated runs is not the final score.
                value = aggregated(
                    normalized(values, plot.algorithm, line.label, data.panel.normalization,
                               lambda run: run.end),
                    how,
                )  # fmt: skip
            else:
                value = expected(values, drawing, plot.algorithm, line.label, plot.measure, how)
            factor = 100 if plot.measure == "dormant_fraction" else 1
            assert line.steps[-1] == data.panel.steps
            assert line.band.value[-1] == pytest.approx(factor * value, rel=1e-6)
            assert line.band.low[-1] <= line.band.value[-1] <= line.band.high[-1]


def test_the_shading_is_the_papers(composed: Compose) -> None:
    result, drawing, values = composed("fig-human-normalized")
    for line in result.charts[0].lines:
        tasks = normalized(values, "dqn", line.label, "human_normalized", lambda run: run.end)
        seeds = np.mean(tasks, axis=0)
        assert line.band.value[-1] == pytest.approx(seeds.mean(), rel=1e-6)
        assert line.band.high[-1] - line.band.value[-1] == pytest.approx(
            seeds.std(ddof=1), rel=1e-6
        )
    for name, divisor in (("fig-dqn-games", 1.0), ("fig-simbav2-tasks", math.sqrt(3))):
        result, drawing, values = composed(name)
        for chart, task in zip(
            result.charts, next(iter(drawing.panels.values())).tasks, strict=True
        ):
            for line in chart.lines:
                algorithm = next(iter(drawing.panels))
                ends = np.array([run.end for run in values[algorithm, line.label, task]])
                half = ends.std(ddof=1) / divisor
                assert line.band.value[-1] == pytest.approx(ends.mean(), rel=1e-6)
                assert line.band.value[-1] - line.band.low[-1] == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_chart_and_its_numbers(composed: Compose, name: str) -> None:
    result, drawing, values = composed(name)
    ((algorithm, data),) = drawing.panels.items()
    assert len(result.charts) == len(data.panel.tasks) in (3, 8, 14, 28, 51)
    table = rows(result.tables[0].csv())
    assert len(table) == len(data.panel.tasks) * len(data.panel.arms)
    for row in table:
        finals = [run.final for run in values[algorithm, row["arm"], row["task"]]]
        assert float(row["score"]) == pytest.approx(np.mean(finals), rel=1e-6)
        assert float(row["deviation"]) == pytest.approx(np.std(finals, ddof=1), rel=1e-6)
        assert int(row["seeds"]) == len(finals)


def test_longer_runs_bend_no_curve(composed: Compose) -> None:
    # Figure 9's runs are of tasks of Figure 18, with five times the budget.
    result, _, values = composed("fig-dmc-visual")
    chart = next(chart for chart in result.charts if chart.title == "humanoid-walk")
    assert max(line.steps[-1] for line in chart.lines) == 500_000
    ends = [run.end for run in values["mrq", "MR.Q", "dmc/humanoid-walk"]]
    assert chart.lines[0].band.value[-1] == pytest.approx(np.mean(ends), rel=1e-6)


def test_the_improvements_of_figure_1(composed: Compose) -> None:
    result, drawing, values = composed("fig-improvements")
    table = {row["algorithm"]: row for row in rows(result.tables[0].csv())}
    assert list(table) == ["dqn", "ppo", "pqn", "simbav2", "mrq"]
    for algorithm, row in table.items():
        how = drawing.panels[algorithm].panel.aggregations[0]
        old, new = (expected(values, drawing, algorithm, arm, "score", how)
                    for arm in (row["against"], row["arm"]))  # fmt: skip
        change = 100 * (new - old) / abs(old)
        assert float(row["change_percent"]) == pytest.approx(change, rel=1e-6)
        assert float(row["low"]) < change < float(row["high"])


def test_table_1(composed: Compose) -> None:
    result, _, values = composed("table-dormancy")
    table = {row["activation"]: row for row in rows(result.tables[0].csv())}
    for name, activation, hr in (("tanh", "tanh", "tanh + HR"), ("ReLU", "relu", "ReLU + HR")):
        without, with_hr = (
            [
                np.mean([run.dormant for run in runs])
                for runs in by_task(values, "dqn", arm).values()
            ]
            for arm in (name, hr)
        )
        row = table[name]
        predicted = np.mean([predicted_dormant(float(p), activation) for p in without])  # type: ignore[arg-type]
        assert float(row["without"]) == pytest.approx(np.mean(without), rel=1e-6)
        assert float(row["with"]) == pytest.approx(np.mean(with_hr), rel=1e-6)
        assert float(row["predicted"]) == pytest.approx(predicted, rel=1e-6)
        change = float(row["measured_change_percent"])
        assert change == pytest.approx(100 * (np.mean(with_hr) / np.mean(without) - 1), rel=1e-6)
        points = float(row["predicted_change_points"])
        assert points == pytest.approx(predicted - np.mean(without), rel=1e-6)
    tasks = rows(result.tables[1].csv())
    assert len(tasks) == 16
    for row in tasks:
        runs = values["dqn", row["activation"], row["task"]]
        assert float(row["without"]) == pytest.approx(np.mean([r.dormant for r in runs]), rel=1e-6)


def test_table_2_is_in_the_papers_units(composed: Compose) -> None:
    result, drawing, values = composed("table-widening")
    table = rows(result.tables[0].csv())
    # The quote keeps a spreadsheet from running the cell as a formula.
    assert [row["row"] for row in table] == [
        "Baseline", "'+ HR", "'+ Widen", "'+ 2HR", *2 * ("Baseline", "'+ HR", "'+ Widen"),
    ]  # fmt: skip
    for row in table:
        algorithm = row["algorithm"]
        panel = drawing.panels[algorithm].panel
        how = panel.aggregations[0]
        old, new = (expected(values, drawing, algorithm, arm, "score", how)
                    for arm in (panel.baseline.label, row["arm"]))  # fmt: skip
        assert float(row["value"]) == pytest.approx(
            new / old if algorithm == "mrq" else new, rel=1e-6
        )
        if row["row"] != "Baseline":
            change = 100 * (new - old) / abs(old)
            assert float(row["change_percent"]) == pytest.approx(change, rel=1e-6)
    latex = result.tables[0].tex()
    for word in ("Baseline", "+ HR", "+ Widen", "+ 2HR", "DQN", "SimbaV2", "MR.Q"):
        assert word in latex


def test_figure_3_shows_a_tenth_and_the_end(composed: Compose) -> None:
    result, _, _ = composed("fig-kde")
    assert "after 1 M steps, seed 0" in result.caption
    assert "after 10 M steps, seed 0" in result.caption
    figure = result.draw()
    cells = [axes for part in figure.subfigs for axes in part.axes]
    assert len(cells) == 32
    red = [axes for axes in cells if axes.spines["left"].get_edgecolor()[0] > 0.7
           and axes.spines["left"].get_linewidth() > 2]  # fmt: skip
    assert len(red) == 2


@pytest.mark.parametrize(
    "name", ["fig-pqn-games", "fig-dmc-visual", "fig-control", "table-widening"]
)
def test_the_largest_figures_are_drawn(composed: Compose, name: str) -> None:
    result, _, _ = composed(name)
    figure = result.draw()
    figure.canvas.draw()
    if result.charts:
        assert len([axes for axes in figure.axes if axes.get_visible()]) == len(result.charts)
