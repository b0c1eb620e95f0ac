"""A panel's runs: which of them count, what is missing, and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard.report.statistics import panel as panel_module
from hadamard.report.statistics.normalize import Scale
from hadamard.report.statistics.shading import aggregated_seeds
from tests.support.panels import BUDGET, HR, RELU, TANH, TASKS, panel_runs

FOUR = [1.0, 2.0, 3.0, 6.0]
WHOLE: dict[str, Any] = {arm.label: dict.fromkeys(TASKS, FOUR) for arm in (TANH, HR)}
HALF = [[1.0] * 5] * 4
"""The episodes of four seeds that came half as far."""


def test_a_whole_panel_has_no_caveats(tmp_path: Path) -> None:
    data = panel_runs(tmp_path, WHOLE)
    assert data.end == BUDGET
    assert data.budget_words == "1 k steps"
    assert data.labels == data.shown_labels == ["tanh", "tanh + HR"]
    assert data.tasks == data.tasks_with("score") == list(TASKS)
    assert data.seeds() == (4, 4)
    assert data.caveats(("score", "dormant_fraction")) == []


def test_the_numbers_at_the_end_and_before(tmp_path: Path) -> None:
    data = panel_runs(tmp_path, WHOLE)
    for measure, expected in (("score", FOUR), ("dormant_fraction", [0.5] * 4)):
        for tasks in data.finals(measure).values():
            assert list(tasks) == list(TASKS)
            assert all(values.tolist() == expected for values in tasks.values())
    halfway = data.at("dormant_fraction", BUDGET / 2)
    assert halfway["tanh"][TASKS[0]].tolist() == [0.25] * 4
    assert data.at("dormant_fraction", BUDGET / 4) == {"tanh": {}, "tanh + HR": {}}
    assert data.aggregations("score") == ("mean", "median")
    assert data.aggregations("dormant_fraction") == ("mean",)
    result = data.estimate("score", "tanh", "mean")
    assert (result.value, result.has_interval) == (3.0, True)


@pytest.mark.parametrize("shading", ["interval", "deviation", "error"])
def test_curves_have_a_band_for_each_arm_that_has_runs(tmp_path: Path, shading: str) -> None:
    data = panel_runs(tmp_path, WHOLE)
    steps, curves = data.curves("score")
    assert len(steps) == 100
    assert steps[-1] == BUDGET
    assert curves["tanh"][TASKS[1]].shape == (4, 100)
    at, bands = data.band("score", ["tanh", "another"], shading)
    assert list(bands) == ["tanh"]
    np.testing.assert_array_equal(at, steps)
    assert bands["tanh"].value[-1] == 3.0
    assert bands["tanh"].low[-1] < 3.0 < bands["tanh"].high[-1]


def test_each_seed_is_aggregated_over_tasks() -> None:
    curves = {"a": np.array([[0.0, 2.0], [4.0, 6.0], [9.0, 9.0]]), "b": np.array([[2.0], [8.0]])}
    curves["b"] = np.repeat(curves["b"], 2, axis=1)
    band = aggregated_seeds(curves, "mean", "deviation")
    # Two seeds that both tasks have: (1, 2) and (6, 7).
    assert band.value.tolist() == [3.5, 4.5]
    np.testing.assert_allclose(band.high - band.value, 5 / np.sqrt(2))
    error = aggregated_seeds(curves, "mean", "error")
    np.testing.assert_allclose(error.value - error.low, 2.5)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    for number, (scores, changes, caveat) in enumerate([
        ({"tanh": WHOLE["tanh"]}, {}, "Drawn without tanh + HR: no complete runs."),
        (
            {**WHOLE, "tanh": {TASKS[0]: FOUR}}, {},
            "Drawn without minatar/asterix: not every arm has complete runs there.",
        ),
        ({**WHOLE, "tanh": dict.fromkeys(TASKS, FOUR[:3])}, {},
         "Seeds are unequal: 3 to 4 runs per arm and task."),
        (WHOLE, {"seeds": 5}, "4 of 5 seeds."),
        (
            {**WHOLE, "tanh": {**WHOLE["tanh"], TASKS[0]: [*FOUR, [1.0] * 5]}}, {},
            "1 unfinished run is left out.",
        ),
        (
            {**WHOLE, "tanh": {**WHOLE["tanh"], TASKS[0]: [*FOUR, [1.0] * 5, [1.0] * 9]}}, {},
            "2 unfinished runs are left out.",
        ),
    ]):  # fmt: skip
        data = panel_runs(tmp_path / str(number), scores, **changes)
        assert data.caveats(("score", "dormant_fraction")) == [caveat]


def test_measures_that_are_missing_are_said(tmp_path: Path) -> None:
    data = panel_runs(tmp_path / "a", WHOLE, dormant=None)
    assert data.caveats() == []
    (caveat,) = data.caveats(("score", "dormant_fraction"))
    assert caveat.startswith("No dormant")
    assert caveat.endswith("on minatar/breakout, minatar/asterix: a run has no diagnosis.")
    equal = {arm: dict.fromkeys(TASKS, [1.0] * 4) for arm in WHOLE}
    data = panel_runs(tmp_path / "b", equal, normalization="baseline_min_max")
    (caveat,) = data.caveats(("score", "dormant_fraction"))
    assert caveat == (
        "No normalized score on minatar/breakout, minatar/asterix: tanh has no lowest and "
        "highest score there to normalize by."
    )
    assert data.scales == {}


def test_an_arm_for_the_normalization_alone_is_not_shown(tmp_path: Path) -> None:
    runs = {**WHOLE, "ReLU": {task: [0.0, 10.0] for task in TASKS}}
    data = panel_runs(tmp_path, runs, yardstick=RELU, normalization="baseline_min_max")
    assert data.labels == ["tanh", "tanh + HR", "ReLU"]
    assert data.shown_labels == ["tanh", "tanh + HR"]
    assert list(data.scales) == list(TASKS)
    assert set(data.scales.values()) == {Scale(0.0, 10.0)}
    assert data.finals("score")["tanh"][TASKS[0]].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.6])


def test_runs_that_stopped_early_are_compared_where_all_are(tmp_path: Path) -> None:
    scores = {"tanh": dict.fromkeys(TASKS, HALF), "tanh + HR": dict.fromkeys(TASKS, HALF)}
    data = panel_runs(tmp_path / "a", scores)
    assert data.end == BUDGET / 2
    assert data.budget_words == "to 500 of 1 k steps"
    assert data.caveats() == [
        "No run has reached 1 k steps: all are drawn up to 500, which every run reached."
    ]
    # One that came all the way makes the others incomplete.
    scores["tanh"] = {TASKS[0]: FOUR, TASKS[1]: HALF}
    data = panel_runs(tmp_path / "b", scores)
    assert data.end == BUDGET
    assert data.complete.keys() == {"tanh"}
    assert data.complete["tanh"].keys() == {TASKS[0]}
    # Arms on less than half as many tasks as the best are left out.
    assert data.labels == ["tanh"]


def test_a_task_whose_first_score_is_late_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first of ten episodes ends after a tenth of the budget.
    data = panel_runs(tmp_path, WHOLE)
    assert data.late_start() == f"Curves begin at 100 steps, with the first score on {TASKS[0]}."
    monkeypatch.setattr(panel_module, "LATE_START", 0.1)
    assert data.late_start() == ""
    assert panel_runs(tmp_path / "none", {}).late_start() == ""
