"""Adam on the sphere: each step is projected, and targets move towards the weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hadamard.compute.sphere import SphereAdam
from tests.support.arrays import array


def test_weights_are_projected_and_targets_move_by_tau() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((2, 5, 3), (1, 3))]
    expected = [nn.Parameter(weight.detach().clone()) for weight in weights]
    targets = [torch.zeros_like(weight) for weight in weights]
    expected_targets = [np.zeros(weight.shape) for weight in weights]
    optimizer = SphereAdam(weights, lr=1e-2, sphere=weights[:1])
    adam = torch.optim.Adam(expected, lr=1e-2)
    for _ in range(5):
        for weight, other in zip(weights, expected, strict=True):
            weight.grad = torch.randn(weight.shape, generator=draw)
            other.grad = weight.grad.clone()
        optimizer.step_with_targets(targets, 0.25)
        adam.step()
        with torch.no_grad():
            lengths = np.linalg.norm(array(expected[0]), axis=1, keepdims=True)
            expected[0].copy_(torch.from_numpy(array(expected[0]) / lengths))
        for target, weight in zip(expected_targets, expected, strict=True):
            target += 0.25 * (array(weight) - target)
    for tensor, value in zip(
        (*weights, *targets), (*map(array, expected), *expected_targets), strict=True
    ):
        np.testing.assert_allclose(array(tensor), value, atol=1e-6)


def test_a_step_without_targets_takes_the_same_step() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(5, 3, generator=draw))]
    others = [nn.Parameter(weights[0].detach().clone())]
    weights[0].grad = others[0].grad = torch.randn(5, 3, generator=draw)
    SphereAdam(weights, lr=1e-2, sphere=weights).step()
    SphereAdam(others, lr=1e-2, sphere=others).step_with_targets([torch.zeros(5, 3)], 0.5)
    assert torch.equal(weights[0], others[0])


def test_misuse_is_refused() -> None:
    weights = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))]
    optimizer = SphereAdam(weights, lr=1e-2)
    weights[0].grad = torch.ones(2, 2)
    with pytest.raises(ValueError, match="a parameter has no gradient"):
        optimizer.step()
    weights[1].grad = torch.ones(2)
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0.0)
    with pytest.raises(ValueError, match="1 targets for 2 parameters"):
        optimizer.step_with_targets([torch.ones(2, 2)], 0.5)
