"""Remedies inside CUDA graphs: alone and in fleets. Needs a CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard import plasticity
from hadamard.compute.jit import also_changes
from hadamard.core import discover
from tests.plasticity.test_in_fleets import SETTINGS, changes
from tests.support.gpu import DEVICE
from tests.support.updates import agent_of, batch_of
from tests.training.fleet.test_fleet_gpu import PLAIN, fleet_of, two_blocks

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("remedy", SETTINGS)
def test_a_captured_fleet_does_what_a_plain_one_does(remedy: str, tmp_path: Path) -> None:
    """The first block is played by equal weights, so what is learned from it is equal, too."""
    ends: list[Tensor] = []
    for name, settings in (("plain", PLAIN), ("captured", {"train.compile": "off"})):
        own = {**changes(remedy), **settings, "train.greedy_envs": 0}
        with fleet_of("pqn", tmp_path / name, (0, 1), own) as fleet:
            _, before, after = two_blocks(fleet)
            ends.append(after)
            assert not torch.equal(before, after)
            states = [t for a in fleet.computation.agents for t in a.after_update.tensors]
            assert all(torch.isfinite(t.float()).all() for t in states)
    assert (ends[0] - ends[1]).abs().max() < 1e-3


@pytest.mark.parametrize("remedy", ["l2_init", "upgd", "nap", "regrama", "weight_clipping"])
def test_warm_up_calls_leave_a_remedys_state(remedy: str) -> None:
    """A captured update alone equals the plain one, from the first update on."""
    weights: list[Tensor] = []
    for capture in (False, True):
        norm = {"net.norm": "layer", "net.where": "all"}
        settings: dict[str, Any] = {"train.capture": capture, "train.compile": "off", **norm}
        torch.manual_seed(0)
        agent = agent_of("pqn", torch.float32, settings, DEVICE)
        config = discover.find(discover.REMEDIES, remedy, "remedy").Config(**SETTINGS[remedy])
        built = plasticity.build(agent.network, agent.optimizer, {remedy: config}, 0)
        also_changes(agent, built.tensors)
        for number in range(3):
            torch.manual_seed(number)
            agent.learn(*batch_of("pqn", device=DEVICE))
        weights.append(agent.weights.vector.detach().clone())
    assert (weights[0] - weights[1]).abs().max() < 1e-4
