"""An optimizer's state moves between devices and is restored exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hadamard.compute import optimizers
from hadamard.compute.adam import Adam, RAdam
from hadamard.core import checkpoint
from hadamard.core.random import seeded
from tests.support.checkpoints import same

CPU = torch.device("cpu")
OPTIMIZERS = [torch.optim.Adam, torch.optim.RAdam, Adam, RAdam]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizers_state_moves_to_the_device_of_its_weights(kind: Any) -> None:
    weights = nn.Parameter(torch.ones(3))
    saved = optimizers.make(kind, [weights], 0.1, CPU)
    weights.grad = torch.ones(3)
    saved.step()
    meta_weights = nn.Parameter(torch.ones(3, device="meta"))
    restored = kind([meta_weights], lr=0.1, capturable=True)
    optimizers.OptimizerState(restored).load_state_dict(
        optimizers.OptimizerState(saved).state_dict()
    )
    state = restored.state[meta_weights]
    assert {value.device.type for value in state.values()} == {"meta"}
    # Settings that depend on the device are not taken from the checkpoint.
    assert restored.param_groups[0]["capturable"]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_restored_optimizer_continues_exactly(tmp_path: Path, kind: Any) -> None:
    def learner() -> tuple[nn.Module, torch.optim.Optimizer]:
        with seeded(1):
            layer = nn.Linear(4, 3)
        return layer, optimizers.make(kind, layer.parameters(), 0.1, CPU)

    def learn(layer: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for i in steps:
            optimizers.set_learning_rate(optimizer, 0.1 / (i + 1))
            optimizer.zero_grad()
            layer(torch.full((2, 4), float(i + 1))).square().sum().backward()
            optimizer.step()

    layer, optimizer = learner()
    learn(layer, optimizer, range(7))
    parts = {"network": layer, "optimizer": optimizers.OptimizerState(optimizer)}
    checkpoint.save(tmp_path, 7, parts)
    other, restored = learner()
    checkpoint.load(tmp_path, {"network": other, "optimizer": optimizers.OptimizerState(restored)})
    assert restored.param_groups[0]["lr"] == 0.1 / 7
    assert same(restored.state_dict(), optimizer.state_dict())
    learn(layer, optimizer, range(7, 12))
    learn(other, restored, range(7, 12))
    assert same(dict(other.state_dict()), dict(layer.state_dict()))


@pytest.mark.parametrize("wrong", ["text", 1.0, torch.zeros(7), torch.zeros(1, 3)])
def test_moments_of_another_form_are_refused(wrong: Any) -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = Adam([weights], 0.1)
    weights.grad = torch.ones(3)
    optimizer.step()
    part = optimizers.OptimizerState(optimizer)
    state = part.state_dict()
    state["state"][0]["exp_avg"] = wrong
    with pytest.raises(ValueError, match=r"exp_avg must be a number or of \(3,\)"):
        part.load_state_dict(state)


@pytest.mark.parametrize("missing", ["betas", "eps", "weight_decay", "lr"])
def test_a_setting_that_was_not_saved_is_the_optimizers_own(missing: str) -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = Adam([weights], 0.1, betas=(0.8, 0.9))
    part = optimizers.OptimizerState(optimizer)
    state = part.state_dict()
    del state["param_groups"][0][missing]
    part.load_state_dict(state)
    weights.grad = torch.ones(3)
    optimizer.step()
    assert weights.tolist() == pytest.approx([0.9] * 3)  # Adam's first step is the learning rate
