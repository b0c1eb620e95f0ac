"""hadamardize replaces the parameters in optimizers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hadamard.layers import hadamardize
from tests.support.models import Attributes, mlp


@pytest.mark.parametrize("optimizers", [3, [3], "adam"])
def test_wrong_optimizers(optimizers):
    with pytest.raises(TypeError, match="optimizers must be torch optimizers"):
        hadamardize(mlp(3, 4, 1), optimizers=optimizers)


def step(net, optimizer, x):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()


def test_optimizer_holds_the_new_parameters_in_order():
    net = mlp(4, 6, 6, 1)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    x = torch.randn(5, 4)
    step(net, optimizer, x)
    unchanged, replaced = net[4].weight, net[0].weight
    conversion = hadamardize(net, optimizers=optimizer)
    assert conversion.optimizers_updated == 1
    assert "1 optimizer updated" in str(conversion)
    held = optimizer.param_groups[0]["params"]
    assert [id(p) for p in held] == [id(p) for p in net.parameters()]
    assert unchanged in optimizer.state
    assert replaced not in optimizer.state
    assert len(optimizer.state) == 2
    before = net[0].affine.weight.detach().clone()
    step(net, optimizer, x)
    assert not torch.equal(net[0].affine.weight[:6], before[:6])
    assert not torch.equal(net[0].affine.weight[6:], before[6:])
    optimizer.load_state_dict(optimizer.state_dict())


def test_optimizer_groups_and_names_are_kept():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    named = list(net.named_parameters())
    weights = {"params": [item for item in named if "weight" in item[0]], "weight_decay": 0.1}
    biases = {"params": [item for item in named if "bias" in item[0]], "weight_decay": 0.0}
    adamw = torch.optim.AdamW([weights, biases])
    sgd = torch.optim.SGD(net[3].parameters(), 0.1)
    conversion = hadamardize(net, activation=nn.PReLU, optimizers=[adamw, sgd])
    assert conversion.optimizers_updated == 1
    now = dict(net.named_parameters())
    for group, kind in zip(adamw.param_groups, ("weight", "bias"), strict=True):
        expected = [name for name in now if kind in name]
        assert sorted(group["param_names"]) == sorted(expected)
        assert [id(now[n]) for n in group["param_names"]] == [id(p) for p in group["params"]]


def test_an_optimizer_of_some_parameters_keeps_only_these():
    net = mlp(4, 6, 1)
    optimizer = torch.optim.SGD([net[0].weight], 0.1)
    hadamardize(net, optimizers=optimizer)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(net[0].affine.weight)]


def test_optimizers_kept_by_modules_are_found():
    net = Attributes()
    net.optimizer = torch.optim.Adam(net.parameters())
    conversion = hadamardize(net, optimizers=[net.optimizer])
    assert conversion.optimizers_updated == 1
    held = {id(p) for p in net.optimizer.param_groups[0]["params"]}
    assert held == set(map(id, net.parameters()))
