"""What makes two runs the same, and what runs are called."""

from __future__ import annotations

from typing import Any

import pytest

from hadamard.core import identity
from hadamard.core.config import flattened, overridden, to_dict
from hadamard.training.start import default_run_dir, default_spec


def settings(**changes: Any) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    spec = overridden(default_spec("pqn", "probe/both"), named)
    return flattened(to_dict(spec))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"seed": 3, "device": "cpu", "run_dir": "x", "env": "probe/constant"}, []),
        ({"train__log_every": 7, "train__compile": "off", "train__greedy_envs": 0}, []),
        ({"train__steps": 64}, ["train.steps"]),
        ({"train__until": 64}, ["train.until"]),
        ({"train__until": 10**6}, []),
        ({"train__atari_reset": "cleanrl"}, []),
        ({"train__atari_reset": "envpool"}, ["train.atari_reset"]),
        ({"net__width": 7, "algo__q_lambda": 0.1}, ["algo.q_lambda", "net.width"]),
        ({"remedy": "redo"}, ["remedy"]),
    ],
)
def test_runs_differ_in_what_makes_the_experiment(changes: Any, names: list[str]) -> None:
    assert identity.changed(settings(), settings(**changes)) == names


def test_the_settings_of_a_remedy_are_part_of_the_experiment() -> None:
    first, second = (settings(remedy="redo", redo__tau=tau) for tau in (0.1, 0.2))
    assert identity.changed(first, second) == ["redo.tau"]
    assert identity.differing([first, second, settings()]) == ["remedy", "redo.tau"]


def test_a_setting_that_a_run_does_not_record_does_not_differ() -> None:
    older = {name: value for name, value in settings().items() if name != "net.where"}
    assert identity.changed(older, settings(net__where="last")) == []
    assert identity.differing([older, settings(net__where="last")]) == []


def test_the_table_has_the_labels_that_runs_get() -> None:
    for variant in identity.VARIANTS.values():
        if {"net.layer", "net.activation"} <= set(variant.settings):
            run = {"net.norm": "none", "remedy": "none", **variant.settings}
            with_norm = "net.norm" in variant.settings
            assert identity.label(run, with_norm=with_norm) == variant.label
    with pytest.raises(ValueError, match="unknown variant 'tanh-hr'; did you mean 'tanh\\+hr'"):
        identity.variant("tanh-hr")


def test_every_setting_that_is_needed_is_there() -> None:
    assert set(identity.REQUIRED) <= set(settings())
    assert identity.REQUIRED[-1] == "remedy"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "pqn_probe-both_plain_relu_layer_seed0"),
        ({"net.norm": "none", "seed": 4, "train.until": 9}, "pqn_probe-both_plain_relu_seed4"),
        ({"algo.q_lambda": 0.9}, "pqn_probe-both_plain_relu_layer_lambda-0.9_seed0"),
        (
            {"remedy": "redo", "redo.tau": 0.1},
            "pqn_probe-both_plain_relu_layer_redo_tau-0.1_seed0",
        ),
        (
            {"train.log_every": 1, "train.steps": 2, "net.width": 3, "algo.gamma": 0.5},
            "pqn_probe-both_plain_relu_layer_39a8bba8_seed0",
        ),
        (
            {"algo.q_lambda": 0.9, "train.log_every": 1, "train.steps": 2, "net.width": 3},
            "pqn_probe-both_plain_relu_layer_7da0ecdd_seed0",
        ),
    ],
)
def test_folders_keep_the_names_they_had(changes: dict[str, Any], name: str) -> None:
    spec = overridden(default_spec("pqn", "probe/both"), changes)
    assert default_run_dir("pqn", spec) == f"runs/{name}"
