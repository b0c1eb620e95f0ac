"""MR.Q's networks: sizes, products, unrolled predictions, and initial weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import HadamardConv2d, HadamardLinear
from hadamard.nets.encoders import make_encoder
from hadamard.nets.mrq import Encoder, Network, Values, Widths

PIXELS = EnvSpec((9, 84, 84), torch.uint8, frames=3, action_size=6)
VECTOR = EnvSpec((24,), torch.float32, action_size=6)


def weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def network(env: EnvSpec = PIXELS, widths: Widths | None = None, **net: Any) -> Network:
    spec = NetSpec(**{"activation": "elu", "where": "all", **net})
    return Network(env, spec, widths or Widths.from_hidden(512))


def test_the_baseline_has_the_published_sizes() -> None:
    # 9 x 32 and 32 x 32 kernels of 3 x 3 with biases, and 32 maps of 7 x 7 to 512.
    convolutions = 9 * 32 * 9 + 32 + 3 * (32 * 32 * 9 + 32)
    dense = 1568 * 512 + 512
    assert weights(network().encoder.state) == convolutions + dense
    mlp = 512 * 512 + 512
    assert weights(network(VECTOR).encoder.state) == 24 * 512 + 512 + 2 * mlp
    full = network()
    assert weights(full.encoder.state_action) == 6 * 256 + 256 + 768 * 512 + 512 + 2 * mlp
    assert weights(full.encoder.next_state) + weights(full.encoder.outcome) == 513 * 578
    assert weights(full.policy) == 2 * mlp + 513 * 6
    assert weights(full.values) == 2 * (3 * mlp + 513)


@pytest.mark.parametrize(
    ("where", "expected"), [("all", 1_667_392), ("conv", 864_064), ("linear", 1_637_024)]
)
def test_the_widened_encoder_has_the_hadamard_encoders_weight_count(
    where: str, expected: int
) -> None:
    product = network(layer="hadamard", where=where)
    wide = network(layer="widened", where=where)
    assert weights(product.encoder.state) == expected
    assert weights(wide.encoder.state) == pytest.approx(expected, rel=0.01)
    assert wide.encoder.state.outputs == product.encoder.state.outputs == 512
    # Nothing after the state encoder changes.
    shapes = [
        {name: p.shape for name, p in variant.named_parameters() if ".state." not in name}
        for variant in (product, wide)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("where", ["all", "last"])
def test_the_widened_encoder_of_vectors_matches_too(where: str) -> None:
    expected = weights(network(VECTOR, layer="hadamard", where=where).encoder.state)
    wide = network(VECTOR, layer="widened", where=where).encoder.state
    assert weights(wide) == pytest.approx(expected, rel=0.01)
    assert wide.outputs == 512


@pytest.mark.parametrize(
    ("env", "layer", "where", "products"),
    [
        (PIXELS, "hadamard", "all", [True] * 5),
        (PIXELS, "hadamard", "conv", [True] * 4 + [False]),
        (PIXELS, "hadamard", "linear", [False] * 4 + [True]),
        (PIXELS, "hadamard", "last", [False] * 4 + [True]),
        (PIXELS, "hadamard2", "all", [False] * 3 + [True] * 2),
        (PIXELS, "plain", "all", [False] * 5),
        (PIXELS, "widened", "all", [False] * 5),
        (VECTOR, "hadamard", "all", [True] * 3),
        (VECTOR, "hadamard", "linear", [True] * 3),
        (VECTOR, "hadamard", "last", [False, False, True]),
    ],
)
def test_where_the_products_go(env: EnvSpec, layer: str, where: str, products: list[bool]) -> None:
    built = network(env, layer=layer, where=where)
    layers = [getattr(m, "layer", m) for m in built.encoder.state.layers]
    kinds = (HadamardConv2d, HadamardLinear)
    assert [isinstance(layer, kinds) for layer in layers] == products
    others = [m for m in built.modules() if isinstance(m, kinds) and m not in layers]
    assert others == []


def test_zs_of_images_by_hand() -> None:
    built = network(layer="hadamard", width=16)
    obs = torch.randint(256, (3, 9, 84, 84), dtype=torch.uint8)
    state = {k: v.double() for k, v in built.encoder.state.state_dict().items()}
    x = obs.double() / 255 - 0.5
    for i, stride in enumerate((2, 2, 2, 1)):
        factors = []
        for branch in range(2):
            name = f"layers.{i}.branches.{branch}.affine"
            h = F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride=stride)
            factors.append(F.elu(h))
        x = factors[0] * factors[1]
    assert x.shape == (3, 32, 7, 7)
    factors = []
    for branch in range(2):
        name = f"layers.4.layer.branches.{branch}.affine"
        h = x.flatten(1) @ state[f"{name}.weight"].T + state[f"{name}.bias"]
        h = (h - h.mean(1, keepdim=True)) / (h.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        factors.append(F.elu(h))
    assert set(state) == {
        f"layers.{i}.{'layer.' if i == 4 else ''}branches.{b}.affine.{kind}"
        for i in range(5)
        for b in range(2)
        for kind in ("weight", "bias")
    }
    expected = (factors[0] * factors[1]).float()
    torch.testing.assert_close(built.encoder.state(obs), expected, rtol=1e-4, atol=1e-5)


def test_the_pair_of_values_is_two_separate_networks() -> None:
    values = Values(6, 10)
    with torch.no_grad():
        for parameter in values.parameters():
            parameter.copy_(torch.randn_like(parameter))
    zsa = torch.randn(7, 6)
    value = values(zsa)
    assert value.shape == (2, 7)
    for i in range(2):
        h = zsa
        for layer in values.hidden:
            h = F.elu(F.layer_norm(h @ layer.weight[i] + layer.bias[i], (10,)))
        expected = (h @ values.value.weight[i] + values.value.bias[i]).squeeze(1)
        torch.testing.assert_close(value[i], expected)


def test_weights_start_uniform_within_xaviers_bound() -> None:
    built = network(layer="hadamard")

    def bound(inputs: int, outputs: int) -> float:
        return math.sqrt(2) * math.sqrt(6 / (inputs + outputs))

    state_action, state = built.encoder.state_action, built.encoder.state.layers
    expected = {
        # Each branch by itself; parts of a map as the full map.
        state[0].affine.weight: bound(81, 288),
        state[1].affine.weight: bound(288, 288),
        state[4].layer.affine.weight: bound(1568, 512),
        state_action.action.weight: bound(6, 256),
        state_action.from_state.weight: bound(768, 512),
        state_action.from_action.weight: bound(768, 512),
        state_action.zsa.layer.affine.weight: bound(512, 512),
        built.encoder.next_state.weight: bound(512, 578),
        built.encoder.outcome.weight: bound(512, 578),
        built.policy.action.weight: bound(512, 6),
        built.values.hidden[0].weight: bound(512, 512),
        built.values.value.weight: bound(512, 1),
    }
    for weight, limit in expected.items():
        assert 0.98 * limit < weight.abs().max().item() <= limit
        assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.05)
    assert not any(p.any() for name, p in built.named_parameters() if name.endswith("bias"))
    first, second = built.values.hidden[1].weight
    assert not torch.equal(first, second)


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize(
    "layer", ["plain", "hadamard", "hadamard2", "widened", "crelu", "layernorm"]
)
def test_every_variant_returns_actions_and_values(layer: str, activation: str) -> None:
    widths = Widths.from_hidden(8)
    for env in (PIXELS, VECTOR):
        built = network(env, widths, layer=layer, activation=activation, width=8)
        obs = torch.randint(256, (2, *env.obs_shape)).to(env.obs_dtype)
        action, value = built(obs)
        assert action.shape == (2, 6)
        assert action.abs().max() <= 1
        assert value.shape == (2,)
        assert built.encoder.state.outputs == (16 if layer == "crelu" else 8)


@pytest.mark.parametrize(
    ("env", "net", "message"),
    [
        (VECTOR, {"where": "conv"}, "--net.where conv.*vector observations have no convolutions"),
        (PIXELS, {"norm": "layer"}, "--net.norm layer.*leave it none"),
        (EnvSpec((1, 10, 10), torch.uint8, action_size=2), {}, "10 x 10 are too small"),
        (EnvSpec((4, 4), torch.uint8, action_size=2), {}, "vectors and images only"),
    ],
)
def test_impossible_encoders_are_refused(env: EnvSpec, net: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(env, **net)


@pytest.mark.parametrize("where", ["conv", "linear"])
def test_other_encoders_refuse_mrqs_choices_of_layers(where: Any) -> None:
    with pytest.raises(ValueError, match=f"--net.where {where} is not possible with"):
        make_encoder(EnvSpec((3,), torch.float32, 2), NetSpec(where=where), "default")


def test_the_gradient_goes_through_all_steps_of_the_unroll() -> None:
    net = NetSpec(activation="elu", where="all", width=8)
    model = Encoder(EnvSpec((3,), torch.float32, action_size=2), net, Widths.from_hidden(8))
    zs = torch.randn(5, 8, requires_grad=True)
    action = torch.rand(5, 4, 2, requires_grad=True)
    states, done, logits = model.unroll(zs, action)
    assert states.shape == (4, 5, 8)
    assert done.shape == (4, 5)
    assert logits.shape == (4, 5, 65)
    by_hand, outcomes = zs, []
    for step in range(4):
        zsa = model.zsa(by_hand, action[:, step])
        by_hand = model.next_state(zsa)
        outcomes.append(model.outcome(zsa))
    torch.testing.assert_close(states[-1], by_hand)
    torch.testing.assert_close(done, torch.stack(outcomes)[..., 0])
    torch.testing.assert_close(logits, torch.stack(outcomes)[..., 1:])
    zs_gradient, action_gradient = torch.autograd.grad(states[-1].square().sum(), [zs, action])
    assert (zs_gradient.abs().sum(1) > 0).all()
    assert (action_gradient.abs().sum(2) > 0).all()
    (action_gradient,) = torch.autograd.grad(
        model.unroll(zs, action)[0][1].square().sum(), [action]
    )
    assert not action_gradient[:, 2:].any()  # a later action changes no earlier state
