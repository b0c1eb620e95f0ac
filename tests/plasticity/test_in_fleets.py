"""Every remedy acts on a run alone and in a fleet, and goes on exactly after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hadamard import plasticity
from tests.support.fleets import (
    assert_same_run,
    resume,
    rows_of,
    sizes_of_fleets,
    spec_of,
    train,
)

SETTINGS: dict[str, dict[str, Any]] = {
    "continual_backprop": {"rate": 0.02, "maturity": 3, "period": 2},
    "l2_init": {"strength": 0.1},
    "layer_resets": {"period": 7, "hidden": 1},
    "nap": {"period": 2},
    "parseval": {"strength": 0.01},
    "plasticity_injection": {"after": 9},
    "redo": {"period": 5, "tau": 0.9},
    "regrama": {"period": 5, "tau": 0.9},
    "shrink_and_perturb": {"period": 7},
    "upgd": {"noise": 0.1},
    "weight_clipping": {"kappa": 0.9},
}
"""Settings with which a remedy does much in a short run."""


def changes(remedy: str) -> dict[str, Any]:
    own = {f"{remedy}.{name}": value for name, value in SETTINGS[remedy].items()}
    norm = {"net.norm": "layer", "net.where": "all"} if remedy == "nap" else {}
    return {"remedy": remedy, **own, **norm}


def test_all_remedies_are_tested() -> None:
    assert set(SETTINGS) == set(plasticity.names())


SHORT = {
    "train.steps": 192,
    "train.health_every": 96,
    "train.checkpoint_every": 64,
    "train.greedy_envs": 0,
}


@pytest.mark.parametrize("remedy", SETTINGS)
def test_a_remedy_acts_on_each_run_alone(
    remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a run without it, it does what it does alone, and after an interruption as well."""
    own = SHORT | changes(remedy)
    plain = {name: value for name, value in own.items() if name.startswith(("net.", "train."))}
    sizes = sizes_of_fleets(monkeypatch)
    paths = {name: tmp_path / name for name in ("plain", "beside", "alone")}
    train("pqn", [spec_of("pqn", paths["plain"], 1, plain), spec_of("pqn", paths["beside"], 1, own)])
    # What has another structure is computed apart.
    assert sizes == ([1, 1] if remedy == "plasticity_injection" else [2])
    train("pqn", [spec_of("pqn", paths["alone"], 1, own | {"train.until": 96})])
    start.resume_together([str(paths["alone"])], Quiet, until=0)
    assert_same_run(paths["alone"], paths["beside"])
    assert rows_of(paths["plain"])["health"] != rows_of(paths["beside"])["health"]


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_several_remedies_act_in_the_other_algorithms(algorithm: str, tmp_path: Path) -> None:
    """In a fleet whose runs have other remedies, or none."""
    several = {"remedy": "l2_init,weight_clipping,redo,upgd"}
    own = [several, {"remedy": "parseval,regrama"}, several, {}]
    if algorithm == "dqn":
        own = [change | {"train.steps": 400} for change in own]
    several |= {"l2_init.strength": 0.1, "weight_clipping.kappa": 0.9, "redo.period": 5}
