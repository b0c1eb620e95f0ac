"""Activations: any callable works, and standard ones have names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hadamard import layers
from hadamard.layers import Hadamard, HadamardLinear, LinearBranch
from hadamard.layers.activations import ACTIVATIONS, activation_name
from hadamard.layers.rational import Rational
from tests.support.layers import paper_linear


def test_an_activation_can_be_any_callable() -> None:
    layer = HadamardLinear(3, 4, torch.sin)
    x = torch.randn(5, 3)
    torch.testing.assert_close(layer(x), paper_linear(x, layer.state_dict(), torch.sin))
    # Softmax uses a whole branch, and must get one branch only.
    softmax = HadamardLinear(3, 4, lambda h: h.softmax(-1))
    expected = paper_linear(x, softmax.state_dict(), lambda h: h.softmax(-1))
    torch.testing.assert_close(softmax(x), expected)
    assert isinstance(HadamardLinear(3, 4, nn.ELU).activation, nn.ELU)


def test_only_standard_activations_have_names() -> None:
    for name, kind in ACTIVATIONS.items():
        # One with parameters of its own is no standard one.
        assert activation_name(kind()) == (None if name == "rational" else name)
    others = [nn.ELU(0.5), nn.GELU("tanh"), nn.LeakyReLU(0.2), nn.Softplus(2), nn.Hardtanh()]
    assert [activation_name(other) for other in others] == [None] * 5
    assert activation_name(nn.ELU(inplace=True)) == "elu"
    x = torch.randn(5, 3)
    half = HadamardLinear(3, 4, nn.ELU(0.5))
    expected = paper_linear(x, half.state_dict(), lambda h: F.elu(h, 0.5))
    torch.testing.assert_close(half(x), expected)
    in_place = HadamardLinear(3, 4, nn.ReLU(inplace=True))
    torch.testing.assert_close(in_place(x), paper_linear(x, in_place.state_dict(), F.relu))


def test_a_rational_activation_is_a_quotient_of_polynomials() -> None:
    module = Rational()
    with torch.no_grad():
        module.numerator.copy_(torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0, 1.0]))
        module.denominator.copy_(torch.tensor([1.0, 0.0, 0.0, -1.0]))
    # At 2: (1 + 4 + 32) / (1 + |2 - 16|); at -1: (1 - 2 - 1) / (1 + |-1 - 1|).
    expected = torch.tensor([37 / 15, -2 / 3])
    torch.testing.assert_close(module(torch.tensor([2.0, -1.0])), expected)


def test_a_rational_activation_starts_close_to_a_leaky_relu() -> None:
    x = torch.linspace(-3, 3, 601)
    assert (Rational()(x) - nn.functional.leaky_relu(x)).abs().max() < 0.035


def test_branches_with_rational_activations_learn_their_own() -> None:
    layer = layers.build("hadamard", LinearBranch(3, 4, "rational"))
    assert isinstance(layer, Hadamard)
    layer(torch.randn(6, 3)).sum().backward()
    first, second = (branch.activation for branch in layer.branches)
    assert not torch.equal(first.numerator.grad, second.numerator.grad)
