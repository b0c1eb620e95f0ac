"""Activations: any callable works, and standard ones have names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hadamard.layers import HadamardLinear
from hadamard.layers.activations import ACTIVATIONS, activation_name
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
        assert activation_name(kind()) == name
    others = [nn.ELU(0.5), nn.GELU("tanh"), nn.LeakyReLU(0.2), nn.Softplus(2), nn.Hardtanh()]
    assert [activation_name(other) for other in others] == [None] * 5
    assert activation_name(nn.ELU(inplace=True)) == "elu"
    x = torch.randn(5, 3)
    half = HadamardLinear(3, 4, nn.ELU(0.5))
    expected = paper_linear(x, half.state_dict(), lambda h: F.elu(h, 0.5))
    torch.testing.assert_close(half(x), expected)
    in_place = HadamardLinear(3, 4, nn.ReLU(inplace=True))
    torch.testing.assert_close(in_place(x), paper_linear(x, in_place.state_dict(), F.relu))
