"""Scores over several tasks: normalized, and compared only with equal budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.report import TASKS, table
from tests.support.runs import measured, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import load
from hadamard.report.data.sections import sections
from hadamard.report.pages.full_report import write_report
from hadamard.report.statistics.multi_task import combine_tasks, normalization_of


def write_runs(
    folder: Path, dormant: dict[tuple[str, str], float], steps: int, **options: Any
) -> None:
    """Write DQN runs of layers and activations with these dormant fractions and scores."""
    for (layer, activation), share in dormant.items():
        name = "-".join([layer, activation, str(steps), *map(str, options.values())])
        write_run(
            folder / name.replace("/", "-"), layer=layer, activation=activation, steps=steps,
            score=[0.0, 10 * share], health=[measured(share, 3.0, 0.0)], algorithm="dqn", **options,
        )  # fmt: skip


RELU, TANH, TANH_HR = ("plain", "relu"), ("plain", "tanh"), ("hadamard", "tanh")


def test_only_equal_budgets_are_compared(tmp_path: Path) -> None:
    for env in TASKS[:2]:
        for seed in range(4):
            write_runs(tmp_path, {RELU: 0.6, TANH: 0.4}, 1000, env=env, seed=seed)
            write_runs(tmp_path, {RELU: 0.1}, 200, env=env, seed=seed)
    ((scores,), _) = combine_tasks(sections(load([tmp_path])))
    long, short = "ReLU, train.steps 1000", "ReLU, train.steps 200"
    assert (scores.baseline, scores.compared, list(scores.not_compared)) == (
        long,
        ["tanh"],
        [short],
    )
    page = write_report(tmp_path / "out", load([tmp_path]), "Budgets").read_text()
    assert f"<li>{short} against {long}: the budgets differ" in page
    comparisons = {
        line["variant"]: line["against_baseline"]
        for line in table(tmp_path / "out", "aggregates-dqn")
    }
    assert comparisons == {long: "baseline", short: "not compared", "tanh": "lower"}


def test_curves_are_at_equal_parts_of_the_budget(tmp_path: Path) -> None:
    for env in TASKS[:2]:
        for seed in range(2):
            write_runs(tmp_path, {RELU: 0.6, TANH: 0.4}, 1000, env=env, seed=seed)
    ((scores,), _) = combine_tasks(sections(load([tmp_path])))
    assert scores.same_budget
    assert scores.compared == list(scores.differences) == list(scores.improvements) == ["tanh"]
    assert scores.differences["tanh"].estimate.value < 0
    assert scores.improvements["tanh"].value == 0
    assert scores.steps.tolist() == list(range(20, 1001, 20))
    for of_label in scores.curves.values():
        for curve in of_label.values():
            assert curve.shape == (2, 50)
            # Episodes end at a tenth and at two tenths of the budget.
            assert np.isnan(curve[:, :4]).all()
            assert np.isfinite(curve[:, 4:]).all()
            assert (curve[:, 4:9] == curve[:, 4:5]).all()
            assert (curve[:, 9:] == curve[:, -1:]).all()


def test_profiles_reach_beyond_the_highest_score(tmp_path: Path) -> None:
    for env in TASKS[:2]:
        for seed, best in enumerate((1.0, 3.0)):
            for activation, scores in (("relu", [best, 4.0]), ("tanh", [best, 5.0])):
                name = f"{activation}{seed}-{env}".replace("/", "-")
                write_run(
                    tmp_path / name, seed, activation=activation, env=env, score=scores,
                    algorithm="dqn",
                )  # fmt: skip
    ((scores,), _) = combine_tasks(sections(load([tmp_path])))
    finals = [v for tasks in scores.scores.values() for values in tasks.values() for v in values]
    low, high = min(0.0, *finals), max(1.0, *finals)
    taus, profiles = scores.profiles()
    np.testing.assert_allclose(np.diff(taus), 1.02 * (high - low) / 80)
    assert (taus[0], taus[-1]) == (low, pytest.approx(low + 1.02 * (high - low)))
    for label, profile in profiles.items():
        own = [value for values in scores.scores[label].values() for value in values]
        assert profile.value.tolist() == [np.mean([value > tau for value in own]) for tau in taus]
        assert profile.value[-1] == 0.0


def test_curves_of_different_budgets_are_in_percent(tmp_path: Path) -> None:
    for env, steps in zip(TASKS[:2], (1000, 200), strict=True):
        for seed in range(2):
            write_runs(tmp_path, {RELU: 0.6, TANH: 0.4}, steps, env=env, seed=seed)
    ((scores,), _) = combine_tasks(sections(load([tmp_path])))
    assert not scores.same_budget
    np.testing.assert_allclose(scores.steps, range(2, 101, 2))


def test_normalizations() -> None:
    assert normalization_of("dqn", ["atari/Pong", "atari/Alien"]) == "baseline_min_max"
    assert normalization_of("pqn", ["atari/Pong"]) == "human_normalized"
    assert normalization_of("simbav2", ["humanoid/h1-run"]) == "success_normalized"
    assert normalization_of("mrq", ["dmc/dog-run"]) == "per_thousand"
    assert normalization_of("other", ["atari/Pong"]) == "human_normalized"
    assert normalization_of("dqn", ["atari/Pong", "dmc/dog-run"]) == "baseline_min_max"


def test_variants_with_scores_on_few_tasks_are_left_out(tmp_path: Path) -> None:
    """On fewer than half of the tasks; otherwise the tasks without their scores are left out."""
    tasks = [f"minatar/{name}" for name in ("asterix", "breakout", "freeway", "seaquest")]
    for number, env in enumerate(tasks):
        shares = {RELU: 0.6, TANH: 0.4}
        if number < 2:
            shares[TANH_HR] = 0.2
        if number < 1:
            shares["hadamard", "relu"] = 0.3
        for seed in range(2):
            write_runs(tmp_path, shares, 1000, env=env, seed=seed)
    ((scores,), failures) = combine_tasks(sections(load([tmp_path])))
    assert not failures
    assert set(scores.scores) == {"ReLU", "tanh", "tanh + HR"}
    assert scores.tasks == tasks[:2]
    assert scores.left_out == [
        "ReLU + HR is left out: it has final scores on 1 of 4 tasks.",
        "minatar/freeway is left out: tanh + HR has no final score there.",
        "minatar/seaquest is left out: tanh + HR has no final score there.",
    ]


def test_tasks_that_cannot_be_combined_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "a", env="minatar/breakout", score=[0.0, 2.0])
    write_run(tmp_path / "b", env="minatar/asterix", score=1.0)  # nothing to normalize by
    combined, failures = combine_tasks(sections(load([tmp_path])))
    assert not combined
    assert "only one task has final scores of every variant" in failures[0]
    assert "minatar/asterix is left out: minatar/asterix: the baseline always" in failures[0]
    page = write_report(tmp_path / "out", load([tmp_path]), "Little").read_text()
    assert "PQN: there is nothing to aggregate:" in page
