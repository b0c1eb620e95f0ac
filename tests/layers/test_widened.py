"""The widened layer has the Hadamard layer's number of weights."""

from __future__ import annotations

import pytest
from torch import nn

from hadamard import layers
from hadamard.layers import Conv2dBranch, LinearBranch, matched_width


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    "recipe",
    [
        LinearBranch(3136, 512),
        LinearBranch(64, 48, norm="layer", bias=False),
        Conv2dBranch(4, 32, kernel_size=8, stride=4),
        Conv2dBranch(32, 64, norm="layer", kernel_size=4),
    ],
)
def test_widened_has_the_hadamard_layers_weights(recipe: LinearBranch) -> None:
    assert count(layers.build("widened", recipe)) == count(layers.build("hadamard", recipe))


def test_matched_width_counts_the_next_layer_too() -> None:
    conv, dense = Conv2dBranch(32, 64, kernel_size=3), LinearBranch(64 * 49, 512)
    width = matched_width(conv, following=dense)
    hadamard = count(layers.build("hadamard", conv)) + count(dense.build())

    def network(channels: int) -> int:
        wide = count(conv.varied(outputs=channels).build())
        return wide + count(dense.varied(inputs=49 * channels).build())

    best = min(range(1, 200), key=lambda channels: abs(network(channels) - hadamard))
    assert width == best
    assert abs(network(width) - hadamard) < 0.01 * hadamard
