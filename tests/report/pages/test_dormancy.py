"""Dormant neurons beside the theory's prediction."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import measured, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import load
from hadamard.report.data.sections import sections
from hadamard.report.pages.dormancy import dormancy_table


def test_the_prediction_is_beside_what_was_measured(tmp_path: Path) -> None:
    tasks = {"minatar/breakout": (0.3, 0.5), "minatar/asterix": (0.1, 0.1)}
    for env, (without, with_hr) in tasks.items():
        for layer, dormant in (("plain", without), ("hadamard", with_hr)):
            for activation in ("relu", "elu"):  # the theory does not cover ELU
                for seed in range(3):
                    health = [measured(dormant + 0.1 * (seed - 1), 3.0, 0.0)]
                    name = f"{env.replace('/', '-')}{layer}{activation}{seed}"
                    write_run(tmp_path / name, seed, layer, activation, env=env, health=health)
    dormancy = dormancy_table(sections(load([tmp_path])))
    assert dormancy is not None
    assert dormancy.data["task"] == ["minatar/asterix", "minatar/breakout", "mean of 2 tasks"]
    assert set(dormancy.data["variant"]) == {"ReLU + HR"}
    assert dormancy.data["without"] == pytest.approx([0.1, 0.3, 0.2])
    # The mean of the tasks' predictions; the prediction from the mean would be 0.36.
    assert dormancy.data["predicted"] == pytest.approx([0.19, 0.51, 0.35])
    assert dormancy.data["measured"] == pytest.approx([0.1, 0.5, 0.3])
    assert dormancy.data["measured_change"] == pytest.approx([0, 2 / 3, 0.5])
    assert dormancy.text["predicted change"] == ["+90 %", "+70 %", "+75 %"]
    # Student's t of 0.4, 0.5 and 0.6: 4.3027 standard errors of 0.1 / sqrt(3).
    assert dormancy.data["measured_high"][1] == pytest.approx(
        0.5 + 0.43027 / math.sqrt(3), abs=1e-4
    )
    without_hr = sections(load(list(tmp_path.glob("*plain*"))))
    assert dormancy_table(without_hr) is None


@pytest.mark.parametrize(
    "plain", [{"activation": "relu"}, {"redo": True}, {"steps": 500}, {"layer": "layernorm"}]
)
def test_hr_is_compared_with_its_own_activation_only(tmp_path: Path, plain: dict[str, Any]) -> None:
    """Against any other network, the change would not be due to HR alone."""
    health = [measured(0.5, 3.0, 0.0)]
    write_run(tmp_path / "hr", layer="hadamard", algorithm="dqn", health=health)
    write_run(tmp_path / "plain", algorithm="dqn", health=health, **plain)
    assert dormancy_table(sections(load([tmp_path]))) is None
    write_run(tmp_path / "tanh", seed=9, algorithm="dqn", health=health)
    assert dormancy_table(sections(load([tmp_path]))) is not None
