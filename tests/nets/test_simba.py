"""SimbaV2's networks against NumPy in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hadamard.algos.simbav2 import Config, SimbaV2
from hadamard.compute.sphere import SphereAdam
from hadamard.core.config import NetSpec, RunSpec
from hadamard.core.types import EnvSpec
from hadamard.nets.simba import Block, HyperDense, Scaler, Shape, Trunk
from tests.support.arrays import array

CPU = torch.device("cpu")


def unit(x: Any) -> Any:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-8)


@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_a_block_interpolates_along_the_sphere(layer: str) -> None:
    torch.manual_seed(0)
    block = Block(Shape(8, 2, 4), NetSpec(layer=layer))
    x = unit(np.random.default_rng(0).normal(size=(5, 8)))
    scale = math.sqrt(2 / 8) / 2
    affine = block.hidden.affine.weight
    rows = 32 if layer == "plain" else 64
    assert affine.shape == (8, rows)
    hidden = np.maximum(x @ array(affine) * scale, 0)
    if layer == "hadamard":
        hidden = hidden[:, :32] * hidden[:, 32:]
        assert not torch.equal(affine[:, :32], affine[:, 32:])
    proposed = unit((hidden + 1e-8) @ array(block.out.weight))
    # alpha starts at 1 / (blocks + 1), whatever its learned vector's scale
    expected = unit(x + (proposed - x) / 3)
    out = block(torch.from_numpy(x).float()).detach().double().numpy()
    np.testing.assert_allclose(out, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(out, axis=-1), 1, atol=1e-6)


def test_a_scaler_learns_in_units_of_its_scale() -> None:
    scaler = Scaler(3, initial=0.5, scale=0.1)
    x = torch.tensor([[1.0, -2.0, 4.0]])
    assert torch.allclose(scaler(x), 0.5 * x)
    with torch.no_grad():
        scaler.vector += 0.01  # a tenth of the scale is a tenth of the factor
    assert torch.allclose(scaler(x), 0.55 * x)


def test_every_unit_is_projected_and_a_zero_one_stays_zero() -> None:
    torch.manual_seed(1)
    dense = HyperDense(6, 4, copies=2)
    assert torch.allclose(dense.weight.norm(dim=-2), torch.ones(2, 4), atol=1e-6)
    with torch.no_grad():
        dense.weight.mul_(3.7)
        dense.weight[1, :, 2] = 0
    before = array(dense.weight)
    dense.weight.grad = torch.zeros_like(dense.weight)
    SphereAdam([dense.weight], lr=0.0, sphere=[dense.weight]).step()
    np.testing.assert_allclose(
        array(dense.weight).swapaxes(1, 2), unit(before.swapaxes(1, 2)), atol=1e-7
    )
    assert not dense.weight[1, :, 2].any()


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 32), (32, 4)])
def test_weights_start_orthogonal(inputs: int, outputs: int) -> None:
    torch.manual_seed(2)
    weight = array(HyperDense(inputs, outputs).weight)
    if outputs < inputs:  # orthonormal columns have unit length
        np.testing.assert_allclose(weight.T @ weight, np.eye(outputs), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(weight, axis=0), 1, atol=1e-6)


def test_the_embedding_keeps_the_length_as_an_angle() -> None:
    torch.manual_seed(3)
    trunk = Trunk(4, Shape(8, 0, 4), NetSpec())
    x = np.array([[1.0, 2.0, -1.0, 0.5], [10.0, 20.0, -10.0, 5.0], [0.0, 0.0, 0.0, 0.0]])
    appended = unit(np.concatenate([x, np.full((3, 1), 3.0)], axis=1))
    expected = unit(appended @ array(trunk.embedding.weight) * math.sqrt(2 / 8))
    np.testing.assert_allclose(trunk(torch.tensor(x).float()).detach(), expected, atol=1e-6)
    assert abs(expected[0] - expected[1]).max() > 0.05


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_widened_network_has_as_many_weights_as_hr() -> None:
    env = EnvSpec((51,), torch.float32, action_size=19, max_steps=500)
    sizes = {}
    for layer in ("plain", "hadamard", "widened"):
        agent = SimbaV2(env, RunSpec(algo=Config(), net=NetSpec(layer=layer, width=512)), CPU)
        sizes[layer] = count(agent.network)
        hidden = agent.critic.trunk.blocks[0].hidden.outputs
        assert hidden == (3072 if layer == "widened" else 2048)
    assert sizes["hadamard"] > 1.4 * sizes["plain"]
    assert sizes["widened"] == pytest.approx(sizes["hadamard"], rel=0.01)
