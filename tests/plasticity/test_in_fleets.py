"""Every remedy acts on a run alone and in a fleet, and goes on exactly after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard import plasticity
from hadamard.core import discover
from hadamard.core.config import NetSpec
from hadamard.experiments.bench import Quiet
from hadamard.nets.heads import QNetwork
from hadamard.plasticity import Remedies, StackedRemedies
from hadamard.training import start
from tests.support.fleets import (
    assert_same_run,
    rows_of,
    sizes_of_fleets,
    spec_of,
    train,
)
from tests.support.nets import GRID

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
    train(
        "pqn", [spec_of("pqn", paths["plain"], 1, plain), spec_of("pqn", paths["beside"], 1, own)]
    )
    # What has another structure is computed apart.
    assert sizes == ([1, 1] if remedy == "plasticity_injection" else [2])
    train("pqn", [spec_of("pqn", paths["alone"], 1, own | {"train.until": 96})])
    start.resume_together([str(paths["alone"])], Quiet, until=0)
    assert_same_run(paths["alone"], paths["beside"])
    assert rows_of(paths["plain"])["health"] != rows_of(paths["beside"])["health"]


SEVERAL = {
    "remedy": "l2_init,redo,upgd",
    "l2_init.strength": 0.1,
    "redo.period": 5,
    "redo.tau": 0.9,
    "upgd.noise": 0.1,
}


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_several_remedies_act_in_the_other_algorithms(algorithm: str, tmp_path: Path) -> None:
    """In a fleet whose other runs have another remedy, or none."""
    short = {"train.greedy_envs": 0, "train.steps": 500 if algorithm == "dqn" else 192}
    own = [short | change for change in (SEVERAL, changes("regrama"), SEVERAL, {})]
    specs = [spec_of(algorithm, tmp_path / str(i), i, change) for i, change in enumerate(own)]
    train(algorithm, specs)
    for index in (1, 2):
        train(algorithm, [spec_of(algorithm, tmp_path / f"alone{index}", index, own[index])])
        assert_same_run(tmp_path / str(index), tmp_path / f"alone{index}")
    train(algorithm, [spec_of(algorithm, tmp_path / "plain", 2, short)])
    assert rows_of(tmp_path / "plain")["train"] != rows_of(tmp_path / "2")["train"]


IN_UPDATES = "l2_init", "nap", "parseval", "regrama", "upgd", "weight_clipping"


@pytest.mark.parametrize("remedy", IN_UPDATES)
def test_neighbors_act_together_as_each_alone(remedy: str) -> None:
    """As on a GPU, where the rows of runs with the same remedy are changed in one call."""

    def members() -> list[Remedies]:
        torch.manual_seed(0)
        net = NetSpec("hadamard", "tanh", width=8, norm="layer", where="all")
        networks = [QNetwork(GRID, net).double() for _ in range(3)]
        config = discover.find(discover.REMEDIES, remedy, "remedy").Config(**SETTINGS[remedy])
        return [
            plasticity.build(n, torch.optim.SGD(n.parameters()), {remedy: config}, seed)
            for seed, n in enumerate(networks)
        ]

    def stacked(remedies: list[Remedies], *, one_by_one: bool) -> StackedRemedies:
        names = remedies[0].weights
        weights = {n: torch.stack([r.weights[n].detach() for r in remedies]) for n in names}
        return StackedRemedies(remedies, weights, one_by_one=one_by_one)

    together, apart = (stacked(members(), one_by_one=alone) for alone in (False, True))
    gradients = {n: torch.randn_like(w) for n, w in together.weights.items()}
    rates = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    for _ in range(3):
        for group in (together, apart):
            own = {name: gradient.clone() for name, gradient in gradients.items()}
            group.change_gradients(own)
            for name, weight in group.weights.items():
                weight -= own[name]
            group.change_weights(rates)
    for name, weight in together.weights.items():
        torch.testing.assert_close(weight, apart.weights[name], msg=name)
    states = [member.state_dict() for group in (together, apart) for member in group.members]
    for ours, theirs in zip(states[:3], states[3:], strict=True):
        for name, tensor in ours.get(remedy, {}).items():
            torch.testing.assert_close(tensor, theirs[remedy][name], msg=name)
