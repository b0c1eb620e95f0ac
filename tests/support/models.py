"""Networks in the styles of other code bases, to be converted."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.layers import hadamardize


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def orthogonal(layer, std=2**0.5, bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Attributes(nn.Module):
    """Modules as attributes, called one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm1, self.act1 = nn.Linear(3, 8), nn.LayerNorm(8), nn.ELU()
        self.fc2, self.act2 = nn.Linear(8, 8), nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = self.act1(self.norm1(self.fc1(x)))
        return self.head(h + self.act2(self.fc2(h)))


class ControlFlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(3, 8), nn.Tanh()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        if x.sum() > 0:
            x = -x
        return self.body(self.act(self.fc(x)))


def fingerprint(model: nn.Module, *optimizers: torch.optim.Optimizer):
    """Return everything that a refused conversion must not change."""
    return (
        [(name, id(module), module.training) for name, module in model.named_modules()],
        [(name, id(parameter)) for name, parameter in model.named_parameters()],
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        [[id(p) for group in o.param_groups for p in group["params"]] for o in optimizers],
        [len(o.state) for o in optimizers],
        torch.get_rng_state(),
    )


def assert_same(before, after) -> None:
    for old, new in zip(before, after, strict=True):
        if isinstance(old, dict):
            assert old.keys() == new.keys()
            assert all(torch.equal(old[name], new[name]) for name in old)
        elif isinstance(old, Tensor):
            assert torch.equal(old, new)
        else:
            assert old == new


def refused(model, message, error=ValueError, **arguments):
    """Check that the conversion raises this error and changes nothing; return the message."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1)), *_initialized(model)])
    before = fingerprint(model, optimizer) if _comparable(model) else None
    with pytest.raises(error, match=message) as refusal:
        hadamardize(model, optimizers=optimizer, **arguments)
    if before is not None:
        assert_same(before, fingerprint(model, optimizer))
    return str(refusal.value)


def _initialized(model):
    return [p for p in model.parameters() if not nn.parameter.is_lazy(p) and p.is_leaf]


def _comparable(model) -> bool:
    return not any(nn.parameter.is_lazy(p) for p in model.parameters())


def two_branches(layer: nn.Module, f, x: Tensor) -> Tensor:
    """Compute the product of two branches from the weights of the state dict."""
    w = layer.state_dict()
    first = F.linear(x, w["branches.0.affine.weight"], w["branches.0.affine.bias"])
    second = F.linear(x, w["branches.1.affine.weight"], w["branches.1.affine.bias"])
    return f(first) * f(second)


def names(conversion):
    return [c.name for c in conversion.changed]
