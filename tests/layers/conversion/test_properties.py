"""hadamardize on random networks: whatever their layers are, the same holds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hadamard.layers import hadamardize
from tests.support.models import assert_same, fingerprint

ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    nn.Tanh,
    nn.ELU,
    lambda: nn.ELU(0.5),
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.PReLU,
    lambda: nn.LeakyReLU(0.3),
]
VECTOR_NORMS: list[Callable[[int], nn.Module] | None] = [
    None,
    nn.LayerNorm,
    lambda width: nn.LayerNorm(width, elementwise_affine=False),
    nn.BatchNorm1d,
    nn.RMSNorm,
]
IMAGE_NORMS: list[Callable[[int], nn.Module] | None] = [
    None,
    nn.BatchNorm2d,
    lambda width: nn.GroupNorm(1, width),
]


class Power(nn.Module):
    """An activation to the power of the number of branches."""

    def __init__(self, activation: nn.Module, branches: int) -> None:
        super().__init__()
        self.activation, self.branches = activation, branches

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(x) ** self.branches
        return out


@dataclass
class Case:
    """A network, an input of it and the number of branches it gets."""

    network: nn.Sequential
    x: Tensor
    hidden: int
    branches: int

    def powers(self) -> nn.Module:
        """Return the network that equal branches make of it."""

        def replace(module: nn.Module) -> nn.Module:
            for name, child in module.named_children():
                if type(child).__module__ == nn.ReLU.__module__:
                    module.register_module(name, Power(child, self.branches))
                else:
                    replace(child)
            return module

        return replace(copy.deepcopy(self.network))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    torch.manual_seed(draw(st.integers(0, 2**32)))
    images = draw(st.booleans())
    width = channels = draw(st.integers(1, 4))
    x = torch.randn((7, width, 9, 8) if images else (7, width))
    convolutions = draw(st.integers(1, 2)) if images else 0
    dense = draw(st.integers(0 if images else 1, 3))
    modules: list[nn.Module] = []

    def add_hidden(layer: nn.Module, norms: list[Callable[[int], nn.Module] | None]) -> None:
        if draw(st.booleans()):
            nn.init.orthogonal_(layer.weight, draw(st.sampled_from([0.01, 1.0, 2**0.5])))
        norm = draw(st.sampled_from(norms))
        parts = [layer, *([] if norm is None else [norm(width)])]
        if draw(st.booleans()):
            parts.append(nn.Identity())
        parts.append(draw(st.sampled_from(ACTIVATIONS))())
        if draw(st.booleans()):
            parts.append(nn.Dropout(0.5))
        nested = draw(st.booleans())
        modules.extend([nn.Sequential(*parts)] if nested else parts)

    for _ in range(convolutions):
        channels, width = width, draw(st.integers(1, 5))
        options = {
            "stride": draw(st.integers(1, 2)),
            "padding": draw(st.integers(0, 1)),
            "bias": draw(st.booleans()),
        }
        if draw(st.booleans()):
            width, options["groups"] = 2 * channels, channels
        add_hidden(nn.Conv2d(channels, width, draw(st.integers(1, 2)), **options), IMAGE_NORMS)
    if images:
        modules.append(nn.Flatten())
        width = nn.Sequential(*copy.deepcopy(modules))(x).shape[1]
    for _ in range(dense):
        inputs, width = width, draw(st.integers(1, 6))
        add_hidden(nn.Linear(inputs, width, bias=draw(st.booleans())), VECTOR_NORMS)
    modules.append(nn.Linear(width, 2))
    network = nn.Sequential(*modules).train(draw(st.booleans()))
    return Case(network, x, convolutions + dense, draw(st.integers(2, 4)))


def branches_of(state: dict[str, Tensor], layer: str) -> list[dict[str, Tensor]]:
    """Return a layer's tensors for each branch, by their names in a branch."""
    branches: dict[str, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        if name.startswith(f"{layer}.branches."):
            index, _, rest = name.removeprefix(f"{layer}.branches.").partition(".")
            branches.setdefault(index, {})[rest] = tensor
    return list(branches.values())


@settings(max_examples=60)
@given(cases())
def test_every_hidden_layer_is_converted_and_learns(case: Case) -> None:
    net, x = case.network, case.x
    shape = copy.deepcopy(net)(x).shape
    modes = {name: module.training for name, module in net.named_modules()}
    old = copy.deepcopy(net).state_dict()
    conversion = hadamardize(net, branches=case.branches)
    assert len(conversion.changed) == case.hidden
    assert len(conversion.skipped) == 1  # the output
    assert conversion.parameters_after == sum(p.numel() for p in net.parameters())
    added = sum(change.parameters_after - change.parameters_before for change in conversion.changed)
    assert conversion.parameters_after - conversion.parameters_before == added
    assert all(
        module.training == modes[name] for name, module in net.named_modules() if name in modes
    )
    out = net(x)
    assert out.shape == shape
    assert out.isfinite().all()
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())

    state = net.state_dict()
    for change in conversion.changed:
        first, *others = branches_of(state, change.name)
        weight = old[f"{change.name}.weight"]
        if any("bias" in name for name in first):
            assert torch.equal(first["affine.weight"], weight)
        else:  # nothing can be shifted towards one: all weights are multiplied by a factor
            factor = first["affine.weight"].norm() / weight.norm()
            torch.testing.assert_close(first["affine.weight"], factor * weight)
        assert len(others) == case.branches - 1
        for branch in others:
            assert branch.keys() == first.keys()
            # Of a single weight, orthogonal initialization draws only the sign.
            if first["affine.weight"].numel() > 1:
                assert not torch.equal(branch["affine.weight"], first["affine.weight"])
    before = fingerprint(net)
    with pytest.raises(ValueError, match="no hidden layer can be converted"):
        hadamardize(net)
    assert_same(before, fingerprint(net))


@settings(max_examples=60)
@given(cases())
def test_equal_branches_are_a_power_of_the_layer(case: Case) -> None:
    net, x = case.network.eval().double(), case.x.double()
    expected = case.powers()(x)
    conversion = hadamardize(net, branches=case.branches, start="paper")
    state = net.state_dict()
    for change in conversion.changed:
        first = branches_of(state, change.name)[0]
        for i in range(1, case.branches):
            state |= {f"{change.name}.branches.{i}.{name}": t for name, t in first.items()}
    net.load_state_dict(state)
    torch.testing.assert_close(net(x), expected, rtol=1e-6, atol=1e-9)


@settings(max_examples=60)
@given(cases(), st.data())
def test_the_branches_parameters_are_independent(case: Case, data: st.DataObject) -> None:
    net = case.network
    conversion = hadamardize(net, branches=case.branches)
    change = data.draw(st.sampled_from(conversion.changed))
    branch = data.draw(st.integers(0, case.branches - 1))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    prefix = f"{change.name}.branches.{branch}."
    state = {
        name: tensor + 1 if name.startswith(prefix) and tensor.is_floating_point() else tensor
        for name, tensor in before.items()
    }
    net.load_state_dict(state)
    after = net.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {
        name for name in before if name.startswith(prefix) and before[name].is_floating_point()
    }


@settings(max_examples=60)
@given(cases(), st.integers(0, 2**32))
def test_a_state_dict_makes_the_same_network_again(case: Case, seed: int) -> None:
    net, other, x = case.network.eval(), copy.deepcopy(case.network).eval(), case.x
    hadamardize(net, branches=case.branches)
    torch.manual_seed(seed)
    for module in other.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    hadamardize(other, branches=case.branches)
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    assert state.keys() == other.state_dict().keys()
    other.load_state_dict(state)
    assert all(torch.equal(t, other.state_dict()[name]) for name, t in state.items())
    assert torch.equal(net(x), other(x))
