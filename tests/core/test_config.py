"""Settings are overridden, read back and checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hadamard.algos import dqn
from hadamard.core import config
from hadamard.core.config import NetSpec, RunSpec, TrainSpec


def test_overrides_name_what_does_not_exist() -> None:
    spec: RunSpec[Any] = RunSpec(algo=dqn.Config())
    changed = config.overridden(spec, {"net.width": 7, "algo.gamma": 0.5, "seed": 2})
    assert (changed.net.width, changed.algo.gamma, changed.seed) == (7, 0.5, 2)
    assert spec.net.width == 512
    with pytest.raises(ValueError, match="unknown setting 'net.wdith'; did you mean 'net.width'"):
        config.overridden(spec, {"net.wdith": 7})
    with pytest.raises(ValueError, match="unknown setting 'nets.width'; did you mean 'net.width'"):
        config.overridden(spec, {"nets.width": 7})


def test_overrides_are_judged_together() -> None:
    # Neither of the two is possible without the other.
    changes = {"train.health_every": 100, "train.health_samples": 10}
    spec: RunSpec[Any] = RunSpec(algo=None)
    for order in (changes, dict(reversed(changes.items()))):
        train = config.overridden(spec, order).train
        assert (train.health_every, train.health_samples) == (100, 10)


def test_settings_come_back_from_json_and_foreign_ones_are_named() -> None:
    spec = RunSpec(algo=None, net=NetSpec(layer="crelu"), train=TrainSpec(steps=5), seed=3)
    values = json.loads(json.dumps(config.to_dict(spec)))
    assert config.from_dict(RunSpec, values) == spec
    with pytest.raises(ValueError, match=r"config.net has fields .* does not know: depth"):
        config.from_dict(RunSpec, {**values, "net": {**values["net"], "depth": 3}})
    older = {key: value for key, value in values["net"].items() if key != "width"}
    assert config.from_dict(RunSpec, {**values, "net": older}) == spec
    lacking = {key: value for key, value in values.items() if key != "algo"}
    with pytest.raises(ValueError, match=r"config lacks algo: .*another version"):
        config.from_dict(RunSpec, lacking)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.steps": 0}, "--train.steps must be at least 1, got 0"),
        ({"net.width": 0}, "--net.width must be at least 1, got 0"),
        ({"remedy": "redo", "redo.period": 0}, "--redo.period must be at least 1, got 0"),
        ({"seed": -1}, "--seed must not be negative, got -1"),
        ({"train.health_every": -5}, "--train.health-every must not be negative, got -5"),
        ({"train.until": -1}, "--train.until must not be negative, got -1"),
        ({"train.steps": 50, "train.until": 51}, "--train.until 51 is more than --train.steps 50"),
        ({"remedy": "redo", "redo.tau": -0.1}, "--redo.tau must not be negative, got -0.1"),
        ({"train.health_samples": 1}, "--train.health-samples must be at least 2, got 1"),
        ({"train.health_every": 100}, "--train.health-every 100 is fewer steps than"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config.overridden(RunSpec(algo=None), changes).check()


def test_the_horizon_is_what_is_trained_for_now() -> None:
    assert TrainSpec(steps=90).horizon == 90
    assert TrainSpec(steps=90, until=20).horizon == 20
