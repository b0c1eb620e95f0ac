"""Every layer variant computes what its name says."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hadamard import layers
from hadamard.layers import Conv2dBranch, HadamardLinear, LinearBranch


@pytest.mark.parametrize("name", list(layers.variants()))
@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        (LinearBranch(6, 8), (64, 6)),
        (Conv2dBranch(6, 8, kernel_size=3, stride=2), (64, 6, 9, 9)),
    ],
    ids=["linear", "conv"],
)
def test_every_variant_has_a_width_a_gradient_and_a_description(
    name: str, activation: str, recipe: LinearBranch, shape: tuple[int, ...]
) -> None:
    layer = layers.build(name, recipe.varied(activation=activation))
    # Many samples, because products of ReLUs and their gradients are zero for most of them.
    out = layer(torch.randn(shape))
    assert out.shape[1] == layer.outputs
    out.square().sum().backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name
    assert layers.variants()[name]


def test_variants_compute_what_their_names_say() -> None:
    recipe, x = LinearBranch(6, 8, "relu"), torch.randn(5, 6)
    plain = layers.build("plain", recipe)
    torch.testing.assert_close(plain(x), F.relu(plain.affine(x)))
    crelu = layers.build("crelu", recipe)
    h = crelu.branch.affine(x)
    torch.testing.assert_close(crelu(x), torch.cat([F.relu(h), F.relu(-h)], dim=1))
    layer_norm = layers.build("layernorm", recipe)
    torch.testing.assert_close(
        layer_norm(x), F.relu(F.layer_norm(layer_norm.affine(x), (8,), eps=1e-6))
    )
    stacked = layers.build("hadamard2", recipe)
    assert [type(part) for part in stacked] == [HadamardLinear, HadamardLinear]
    torch.testing.assert_close(stacked(x), stacked[1](stacked[0](x)))
    widened = layers.build("widened", recipe)
    assert widened.outputs == 16
