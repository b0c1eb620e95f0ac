"""How a product of branches starts: plain, scaled or near one."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.layers import HadamardConv2d, HadamardLinear, hadamardize
from hadamard.layers.start import apply_start, matching_factor, near_one_shift

INPUTS = 64


def second_moment(x: Tensor) -> float:
    return x.double().square().mean().item()


def plain(activation: nn.Module, norm: bool = False) -> nn.Sequential:
    layers = [nn.Linear(INPUTS, 4096), *([nn.LayerNorm(4096)] if norm else []), activation]
    return nn.Sequential(*layers)


def batch() -> Tensor:
    x = torch.randn(512, INPUTS, generator=torch.Generator().manual_seed(1))
    return x / x.square().mean(dim=1, keepdim=True).sqrt()


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.SiLU(), nn.ELU()])
@pytest.mark.parametrize("branches", [2, 3])
@pytest.mark.parametrize("norm", [False, True])
def test_a_scaled_product_has_the_second_moment_of_the_layer(
    activation: nn.Module, branches: int, norm: bool
) -> None:
    torch.manual_seed(0)
    net = plain(activation, norm)
    target = second_moment(net(batch()))
    as_in_the_paper = copy.deepcopy(net)
    hadamardize(as_in_the_paper, branches=branches, start="paper")
    hadamardize(net, branches=branches, start="scaled")
    assert second_moment(net(batch())) == pytest.approx(target, rel=0.1)
    if isinstance(activation, nn.Tanh):
        assert second_moment(as_in_the_paper(batch())) < 0.7 * target


def test_the_factor_of_relu_is_the_one_by_hand() -> None:
    # (c**2 s**2 / 2)**2 = s**2 / 2 at s = 3
    assert matching_factor(nn.ReLU(), 3.0, 2) == pytest.approx((2 / 9) ** 0.25, abs=1e-4)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "sigmoid"])
@pytest.mark.parametrize("branches", [2, 3])
def test_branches_after_the_first_start_near_one(activation: str, branches: int) -> None:
    torch.manual_seed(0)
    layer = HadamardLinear(INPUTS, 512, activation, branches=branches, start="near_one")
    first, *others = layer.split()
    for other in others:
        out = other(0.05 * batch())  # small inputs: what the shift alone does
        expected = 0.9 if activation in ("tanh", "sigmoid") else 1.0
        assert out.mean().item() == pytest.approx(expected, abs=0.02)
    share = second_moment(layer(batch())) / second_moment(first(batch()))
    assert 0.5 < share < 2.5


def test_a_layer_that_was_odd_stays_nearly_odd() -> None:
    """With zero biases a product of two tanh gives z(-x) = z(x)."""
    odd = nn.Sequential(nn.Linear(INPUTS, 64), nn.Tanh())
    nn.init.zeros_(odd[0].bias)
    even, kept = copy.deepcopy(odd), copy.deepcopy(odd)
    hadamardize(even, start="paper")
    hadamardize(kept)
    x = batch()
    torch.testing.assert_close(even(x), even(-x))
    assert F.cosine_similarity(odd(x).flatten(), kept(x).flatten(), 0) > 0.95


def test_a_start_draws_no_other_random_numbers() -> None:
    weights = []
    for start in ("paper", "near_one", "scaled"):
        torch.manual_seed(0)
        layer = HadamardConv2d(3, 4, 3, start=start)
        weights.append((layer.affine.weight.detach(), torch.rand(1)))
    (paper, number), (near, same), (scaled, again) = weights
    assert number == same == again
    assert torch.equal(paper, near)
    torch.testing.assert_close(scaled / paper, torch.full_like(paper, (scaled / paper).mean()))


def test_a_layer_without_a_bias_is_scaled_by_default() -> None:
    net = nn.Sequential(nn.Linear(INPUTS, 256, bias=False), nn.Tanh())
    expected = copy.deepcopy(net)
    torch.manual_seed(0)
    hadamardize(net)
    torch.manual_seed(0)
    hadamardize(expected, start="scaled")
    assert torch.equal(net(batch()), expected(batch()))


def test_twins_stay_equal_and_frozen_layers_frozen() -> None:
    for start in ("near_one", "scaled"):
        online = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
        net = nn.ModuleList([online, copy.deepcopy(online).requires_grad_(False)])
        hadamardize(net, start=start)
        x = torch.randn(5, 4)
        assert torch.equal(net[0](x), net[1](x))
        assert not any(p.requires_grad for p in net[1].parameters())


def test_what_cannot_start_so_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown start 'near_on'; did you mean 'near_one'"):
        HadamardLinear(2, 3, start="near_on")
    with pytest.raises(ValueError, match="unknown start"):
        hadamardize(plain(nn.Tanh()), start=3)
    with pytest.raises(ValueError, match="needs a bias, and the layer has none"):
        HadamardLinear(2, 3, bias=False, start="near_one")
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Tanh())
    with pytest.raises(ValueError, match="cannot convert 0: start='near_one' needs a bias"):
        hadamardize(net, start="near_one")
    with pytest.raises(ValueError, match="needs an activation that becomes positive"):
        near_one_shift(nn.LogSigmoid())
    with pytest.raises(ValueError, match="cannot start='scaled': .* never as large"):
        HadamardLinear(2, 3, "sigmoid", start="scaled")
    with pytest.raises(ValueError, match="cannot be applied to single numbers"):
        near_one_shift(nn.GLU())


def test_the_default_converts_what_has_no_better_start() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GLU())
    hadamardize(net)
    assert net(torch.randn(3, 4)).shape == (3, 4)


def test_an_activation_that_draws_numbers_leaves_the_random_state() -> None:
    state = torch.get_rng_state()
    near_one_shift(nn.RReLU())
    assert torch.equal(state, torch.get_rng_state())


def test_apply_start_checks_its_name() -> None:
    with pytest.raises(ValueError, match="unknown start 'none'"):
        apply_start([], "none")  # type: ignore[arg-type]
