"""The grid of a sweep is every combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hadamard.experiments.grid import grid, seeds_from


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    jobs = grid("dqn", ["probe/both", "minatar/asterix"], ["relu", "tanh+hr"], [3, 4], tmp_path)
    assert [job.name for job in jobs[:3]] == [
        "dqn_probe-both_relu_seed3",
        "dqn_probe-both_tanh+hr_seed3",
        "dqn_probe-both_relu_seed4",
    ]
    assert len({job.path for job in jobs}) == len(jobs) == 8
    assert (jobs[1].spec.net.layer, jobs[1].spec.net.activation) == ("hadamard", "tanh")
    # An environment's own defaults stay.
    assert jobs[0].spec.net.width == 64
    assert jobs[4].spec.net.width == 128


@pytest.mark.parametrize(
    ("envs", "variants", "seeds", "overrides", "message"),
    [
        (["probe/both", "probe/both"], ["relu"], [0], {}, "environment probe/both is named twice"),
        (["probe/both"], ["relu", "relu"], [0], {}, "variant relu is named twice"),
        (["probe/both"], ["relu"], [1, 1], {}, "seed 1 is named twice"),
        (["probe/both"], [], [1], {}, "at least one variant"),
        (["probe/both"], ["rely"], [1], {}, "unknown variant 'rely'; did you mean 'relu'"),
        (["probe/both"], ["relu"], [1], {"net.layer": "crelu"}, "net.layer is set by the variant"),
        (["probe/both"], ["relu"], [1], {"train.steps": 0}, "--train.steps must be at least 1"),
    ],
)
def test_a_wrong_grid_is_refused(
    envs: list[str], variants: list[str], seeds: list[int], overrides: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        grid("dqn", envs, variants, seeds, "runs", overrides)


@pytest.mark.parametrize("text", ["1" + "0" * 18, "9" * 400, "0-" + "9" * 18, "5-" + "9" * 30])
def test_too_many_seeds_are_refused_before_a_list_is_made(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds .*(10,000 seeds are the most|19 digits)"):
        seeds_from(text)


@pytest.mark.parametrize("text", ["0", "", "x", "7-3", "1,,2", "-3", "²", "٣"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds must be"):
        seeds_from(text)


def test_every_combination_of_values_is_a_run_that_its_folder_names(tmp_path: Path) -> None:
    axes = {"algo.learning_rate": ["1e-3", 3e-4], "algo.batch_size": ["32"], "redo.tau": [0.1, 0.2]}
    jobs = grid("dqn", "probe/both", ["tanh", "redo"], [3], tmp_path, axes=axes)
    assert [job.name.removeprefix("dqn_probe-both_") for job in jobs] == [
        "tanh_learning_rate-0.001_batch_size-32_seed3",
        "tanh_learning_rate-0.0003_batch_size-32_seed3",
        "redo_learning_rate-0.001_batch_size-32_tau-0.1_seed3",
        "redo_learning_rate-0.001_batch_size-32_tau-0.2_seed3",
        "redo_learning_rate-0.0003_batch_size-32_tau-0.1_seed3",
        "redo_learning_rate-0.0003_batch_size-32_tau-0.2_seed3",
    ]
    assert jobs[-1].spec.remedies["redo"]["tau"] == 0.2
    assert (jobs[-1].spec.algo.learning_rate, jobs[-1].spec.algo.batch_size) == (3e-4, 32)
    assert jobs[0].spec.remedies == {}


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"algo.learning_rate": ["fast"]}, "algo.learning_rate must be a number, got 'fast'"),
        ({"algo.learning_rat": [1]}, "unknown setting 'algo.learning_rat'; did you mean 'algo.l"),
        ({"algo.gamma": ["0.9", "0.90"]}, "--algo.gamma 0.9 is named twice"),
        ({"algo.gamma": []}, "--algo.gamma needs at least one value"),
        ({"algo.gamma": [2]}, "--algo.gamma must lie in"),
        ({"net.layer": ["crelu"]}, "net.layer is set by the variant tanh"),
        ({"redo.tau": [0.1]}, "--redo.tau is a setting of the remedy redo, which is not chosen"),
        ({"train.log_every": [5, 6]}, "--train.log-every is not part of what a run learns"),
    ],
)
def test_values_that_make_no_grid_are_refused(axes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid("dqn", "probe/both", ["tanh"], [0], "runs", axes=axes)
