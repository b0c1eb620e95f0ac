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
    # The squares of a sine and its cosine have a constant sum, as the cubes of tanh's two signs.
    (out.pow(2) + out.pow(3)).sum().backward()
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


def test_deep_fourier_features_are_sines_and_cosines_of_half_as_many_units() -> None:
    layer, x = layers.build("fourier", LinearBranch(6, 8, "relu")), torch.randn(5, 6)
    h = layer.branch.affine(x)
    assert h.shape == (5, 4)
    torch.testing.assert_close(layer(x), torch.cat([torch.sin(h), torch.cos(h)], dim=1))
    with pytest.raises(ValueError, match="its width must be even, got 7"):
        layers.build("fourier", LinearBranch(6, 7))


def test_a_gated_linear_unit_is_a_linear_branch_times_a_gate() -> None:
    layer, x = layers.build("glu", LinearBranch(6, 8, "sigmoid")), torch.randn(5, 6)
    linear, gate = layer.branches
    torch.testing.assert_close(layer(x), linear.affine(x) * torch.sigmoid(gate.affine(x)))


def test_hadamax_pools_a_product_of_convolutions() -> None:
    recipe = Conv2dBranch(3, 4, kernel_size=4, stride=2)
    layer, x = layers.build("hadamax", recipe), torch.randn(2, 3, 7, 7)
    padded = F.pad(x, (1, 2, 1, 2))
    factors = []
    for branch in layer.product.split():
        h = F.conv2d(padded, branch.affine.weight, branch.affine.bias)
        normed = F.layer_norm(h.movedim(1, -1), (4,), eps=1e-6).movedim(-1, 1)
        factors.append(F.gelu(normed))
    # 7 pixels in windows of 2: the last window has one.
    expected = F.max_pool2d(factors[0] * factors[1], 2, 2, ceil_mode=True)
    torch.testing.assert_close(layer(x), expected)
    assert layer.size_after((7, 7)) == (4, 4)


def test_hadamax_without_a_stride_pools_over_the_kernel() -> None:
    layer = layers.build("hadamax", Conv2dBranch(3, 4, kernel_size=3))
    x = torch.randn(2, 3, 6, 5)
    product = layer.product(F.pad(x, (1, 1, 1, 1)))
    torch.testing.assert_close(layer(x), F.max_pool2d(product, 3, 1, padding=1))
    assert layer.size_after((6, 5)) == (6, 5)


def test_hadamax_has_the_published_sizes() -> None:
    """On frames of 84 x 84: 21, 11 and 11 pixels, and 7,744 inputs of the linear layer."""
    size = (84, 84)
    sizes = []
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        recipe = Conv2dBranch(1, 2, kernel_size=kernel, stride=stride)
        layer = layers.build("hadamax", recipe)
        shape = layer(torch.zeros(1, 1, *size)).shape[2:]
        size = layer.size_after(size)
        assert size == tuple(shape)
        sizes.append(size[0])
    assert sizes == [21, 11, 11]
