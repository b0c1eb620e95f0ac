"""The hidden bias agrees with numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hadamard import HadamardConv2d, HadamardLinear
from hadamard.health import dormant, hidden_bias
from tests.support.health import BAD_ACTIVATIONS


def test_hidden_bias_agrees_with_numbers_worked_out_by_hand() -> None:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 4.0]]))
        layer.bias.copy_(torch.tensor([0.25, -0.5]))
    z = torch.tensor([[0.5, 1.0, -1.0], [-0.5, 1.0, -1.0]])
    split = hidden_bias(z, layer, torch.tensor([False, True, True]))
    # Live: 0.5 * 1 and 0.5 * 0.5. Dormant: 2 + 1 and 0 - 4, for every input.
    assert split.live_contribution.tolist() == [0.5, 0.25]
    assert split.dormant_contribution.tolist() == [3.0, 4.0]
    assert split.bias_contribution.tolist() == [0.25, 0.5]
    assert split.effective_bias.tolist() == [3.25, -4.5]
    assert split.share == pytest.approx(7 / (7 + 0.75 + 0.75))


def test_contributions_to_each_output_are_averages_over_samples_and_tokens() -> None:
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, -3.0]]))
        layer.bias.copy_(torch.tensor([0.5, 0.0, -0.25]))
    z = torch.tensor([[[1.0, 2.0], [-3.0, 2.0]], [[0.0, 2.0], [2.0, 2.0]]])  # two tokens each
    split = hidden_bias(z, layer, torch.tensor([False, True]))
    # The live neuron's magnitudes are 1, 3, 0 and 2; the dormant one is always 2.
    assert split.live_contribution.tolist() == [1.5, 3.0, 0.0]
    assert split.dormant_contribution.tolist() == [0.0, 2.0, 6.0]
    assert split.bias_contribution.tolist() == [0.5, 0.0, 0.25]
    assert split.effective_bias.tolist() == [0.5, 2.0, -6.25]
    # In images the outputs are channels: here a convolution of one pixel with the same weights.
    conv = nn.Conv2d(2, 3, 1)
    with torch.no_grad():
        conv.weight.copy_(layer.weight[:, :, None, None])
        conv.bias.copy_(layer.bias)
    split = hidden_bias(z.mT.unsqueeze(-1), conv, torch.tensor([False, True]))
    assert split.live_contribution.tolist() == [1.5, 3.0, 0.0]
    assert split.effective_bias.tolist() == [0.5, 2.0, -6.25]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 4), (9, 6)),
        (nn.Linear(6, 4, bias=False), (9, 5, 6)),
        (nn.Conv2d(6, 4, 3, padding=1, stride=2), (9, 6, 5, 5)),
        (nn.Conv1d(6, 4, 3), (9, 6, 5)),
        (nn.Linear(6 * 4, 3), (9, 6, 2, 2)),
        (HadamardLinear(6, 4), (9, 6)),
        (HadamardConv2d(6, 4, 3), (9, 6, 5, 5)),
    ],
    ids=["linear", "tokens", "conv2d", "conv1d", "flattened", "hadamard", "hadamard-conv"],
)
def test_the_three_parts_add_up(layer: nn.Module, shape: tuple[int, ...]) -> None:
    z = torch.randn(shape)
    features = shape[1] if len(shape) != 3 or isinstance(layer, nn.Conv1d) else shape[-1]
    if isinstance(layer, nn.Conv1d):
        mask = (torch.rand(shape[1:]) < 0.5).flatten()  # 3 dimensions: one entry per position
    else:
        mask = torch.arange(features) % 2 == 0
    split = hidden_bias(z, layer, mask)
    affine = getattr(layer, "affine", layer)
    true = affine(z.flatten(1) if isinstance(affine, nn.Linear) and len(shape) == 4 else z)
    torch.testing.assert_close(split.live + split.dormant + split.bias, true)
    assert 0 < split.share < 1
    assert len(split.effective_bias) == true.shape[split.output_dim]


def test_dead_relus_contribute_nothing() -> None:
    z = torch.relu(torch.randn(20, 8))
    z[:, :3] = 0
    split = hidden_bias(z, nn.Linear(8, 2), dormant(z, "relu").mask)
    assert split.share == 0
    assert not split.dormant.any()
    zero = hidden_bias(torch.zeros(4, 8), nn.Linear(8, 2, bias=False), torch.ones(8).bool())
    assert zero.share == 0


@pytest.mark.parametrize("case", BAD_ACTIVATIONS)
def test_hidden_bias_never_returns_nan(case: str) -> None:
    activations, error, message = BAD_ACTIVATIONS[case]
    width = activations.shape[-1] if isinstance(activations, torch.Tensor) else 2
    with pytest.raises(error, match=message):
        hidden_bias(activations, nn.Linear(max(width, 1), 2), torch.ones(width).bool())


def test_hidden_bias_refuses_a_layer_with_broken_weights() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="Linear returns NaN or infinite values for finite"):
        hidden_bias(torch.randn(4, 3), layer, torch.ones(3).bool())
