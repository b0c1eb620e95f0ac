"""Hidden layers: where products and norms go, and how weights are initialized."""

from __future__ import annotations

import math

import pytest
import torch

from hadamard.algos import dqn, ppo, pqn
from hadamard.core import config
from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import Branch, Hadamard, HadamardConv2d, HadamardLinear, variants
from hadamard.layers.crelu import Concatenated
from hadamard.layers.fourier import Fourier
from hadamard.nets.encoders import make_encoder
from hadamard.nets.hidden import Hidden, Init
from tests.support.nets import FRAMES, GRID, VECTOR, observations


def kinds(net: NetSpec, env: EnvSpec) -> list[str]:
    """Return the kind of each hidden layer and its width."""
    names = {HadamardLinear: "product", HadamardConv2d: "product", Branch: "branch"}
    names[Concatenated] = "concatenated"
    return [f"{names[type(h.layer)]} {h.outputs}" for h in make_encoder(env, net, "default").layers]


@pytest.mark.parametrize(
    ("net", "env", "expected"),
    [
        (dqn.NET, FRAMES, ["branch 32", "branch 64", "branch 64", "product 512"]),
        (ppo.NET, FRAMES, ["branch 32", "branch 64", "branch 64", "product 512"]),
        (pqn.NET, FRAMES, ["product 32", "product 64", "product 64", "product 512"]),
        (dqn.NET, GRID, ["branch 16", "product 512"]),
        (pqn.NET, GRID, ["product 16", "product 512"]),
        (dqn.NET, VECTOR, ["branch 512", "product 512"]),
    ],
)
def test_where_the_product_goes(net: NetSpec, env: EnvSpec, expected: list[str]) -> None:
    hadamard = config.overridden(net, {"layer": "hadamard"})
    assert kinds(hadamard, env) == expected
    plain = [f"branch {name.split()[1]}" for name in expected]
    assert kinds(net, env) == plain
    twice = plain[:-2] + [name.replace("branch", "product") for name in plain[-2:]]
    assert kinds(config.overridden(net, {"layer": "hadamard2"}), env) == twice
    assert kinds(config.overridden(net, {"layer": "widened"}), env) == [*plain[:-1], "branch 1024"]


def test_concatenation_widens_the_next_layer() -> None:
    expected = ["branch 32", "branch 64", "branch 64", "concatenated 1024"]
    assert kinds(NetSpec(layer="crelu"), FRAMES) == expected
    expected = ["concatenated 64", "concatenated 128", "concatenated 128", "concatenated 1024"]
    assert kinds(NetSpec(layer="crelu", where="all"), FRAMES) == expected


def norms(net: NetSpec, env: EnvSpec) -> list[str | None]:
    def norm(hidden: Hidden) -> str | None:
        layer = hidden.layer
        if isinstance(layer, Concatenated | Fourier):
            layer = layer.branch
        if isinstance(layer, Hadamard):
            layer = layer.branches[1]
        return None if layer.norm is None else layer.norm.over

    return [norm(hidden) for hidden in make_encoder(env, net, "default").layers]


@pytest.mark.parametrize("variant", [name for name in variants() if name != "hadamax"])
def test_where_the_norm_goes(variant: str) -> None:
    net = NetSpec(layer=variant, width=8, norm="layer")
    assert norms(net, FRAMES) == [None, None, None, "features"]
    everywhere = config.overridden(net, {"where": "all"})
    assert norms(everywhere, FRAMES) == ["features"] * 4
    maps = config.overridden(everywhere, {"norm": "layer_map"})
    # A dense layer has only features; the layernorm variant normalizes over them by definition.
    over = "features" if variant == "layernorm" else "map"
    assert norms(maps, FRAMES) == [over] * 3 + ["features"]
    bare = config.overridden(everywhere, {"norm": "none"})
    assert norms(bare, FRAMES) == ["features" if variant == "layernorm" else None] * 4


def test_each_branch_is_normalized_independently() -> None:
    hidden = make_encoder(GRID, NetSpec("hadamard", "identity", "layer", 8, "all"), "he").layers[0]
    obs = observations(GRID, 4).float()
    pre = hidden.layer.norm(hidden.affine(obs)).unflatten(1, (2, 16))
    assert torch.allclose(pre.mean(2), torch.zeros(()), atol=1e-5)
    assert torch.allclose(pre.var(2, correction=0), torch.ones(()), atol=1e-2)
    torch.testing.assert_close(hidden(obs), pre[:, 0] * pre[:, 1])


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("init", ["default", "orthogonal", "he"])
def test_branches_are_drawn_independently_from_the_right_distribution(
    variant: str, init: Init
) -> None:
    hidden = make_encoder(FRAMES, NetSpec(layer=variant, width=512, where="all"), init).layers
    for layer in hidden:
        weight = layer.affine.weight.detach().flatten(1).double()
        bias = layer.affine.bias.detach()
        fan_in = weight.shape[1]
        branches = weight.chunk(getattr(layer.layer, "branch_count", 1))
        for branch in branches:
            if init == "orthogonal":
                short = branch if len(branch) <= fan_in else branch.T
                identity = 2 * torch.eye(len(short), dtype=torch.float64)
                torch.testing.assert_close(short @ short.T, identity, rtol=0, atol=2e-5)
            else:
                variance = 2 / fan_in if init == "he" else 1 / (3 * fan_in)
                # Five standard errors of a variance; both distributions have lighter tails than
                # a normal one, whose fourth moment this allows.
                slack = 5 * math.sqrt(2 / branch.numel())
                assert float(branch.square().mean()) == pytest.approx(variance, rel=slack)
                assert abs(float(branch.mean())) < 5 * math.sqrt(variance / branch.numel())
                widest = 2 * math.sqrt(variance) / 0.87962566 if init == "he" else fan_in**-0.5
                assert 0.99 * widest < float(branch.abs().max()) <= widest * (1 + 1e-6)
        if len(branches) == 2:
            a, b = branches
            correlation = float((a * b).mean() / (a.norm() * b.norm()) * a.numel())
            assert abs(correlation) < 5 / math.sqrt(a.numel())
            assert float((a == b).double().mean()) < 1e-4
            if init == "orthogonal":
                # Drawn together, they would also be orthogonal to each other.
                spread = float((a @ b.T).std(correction=0))
                assert spread == pytest.approx(2 / math.sqrt(fan_in), rel=0.1)
        assert bool((bias == 0).all()) == (init != "default")
    assert len(branches) == (2 if variant.startswith("hadamard") else 1)
