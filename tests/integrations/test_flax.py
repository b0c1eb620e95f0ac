"""The layer in Flax equals ours on the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("flax", reason="flax is not installed")

import jax
import jax.numpy as jnp

from hadamard.integrations.flax import HadamardConv, HadamardDense, params_of
from hadamard.layers import Hadamard, HadamardConv2d, HadamardLinear

pytestmark = pytest.mark.own_process


def key() -> jax.Array:
    return jax.random.key(0)


@pytest.mark.parametrize(
    ("activation", "branches", "norm"),
    [("tanh", 2, None), ("gelu", 3, "layer"), ("elu", 2, "layer"), ("silu", 3, None)],
)
def test_dense_equals_ours(activation: str, branches: int, norm: str | None) -> None:
    ours = HadamardLinear(7, 5, activation, norm=norm, branches=branches)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(4, 3, 7)
    theirs = HadamardDense(5, activation, branches, norm=norm)
    params = params_of(ours)
    expected = jax.tree.map(jnp.shape, theirs.init(key(), jnp.zeros((1, 7)))["params"])
    assert jax.tree.map(jnp.shape, params) == expected
    out = theirs.apply({"params": params}, x.numpy())
    np.testing.assert_allclose(out, ours(x).detach(), rtol=1e-4, atol=1e-5)

    def total(params: dict[str, dict[str, jax.Array]]) -> jax.Array:
        return theirs.apply({"params": params}, x.numpy()).sum()

    ours(x).sum().backward()
    gradient = jax.grad(total)(params)["affine"]["kernel"]
    np.testing.assert_allclose(gradient.T, ours.affine.weight.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm", [None, "layer"])
def test_convolution_equals_ours(norm: str | None) -> None:
    ours = HadamardConv2d(3, 5, (3, 2), stride=2, norm=norm)
    x = torch.randn(4, 3, 9, 8)
    theirs = HadamardConv(5, norm=norm, kernel_size=(3, 2), strides=2)
    channels_last = x.movedim(1, -1).numpy()
    out = theirs.apply({"params": params_of(ours)}, channels_last)
    expected = ours(x).detach().movedim(1, -1)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", [None, "layer"])
def test_a_start_near_one_is_ours(norm: str | None) -> None:
    ours = params_of(HadamardLinear(6, 4, norm=norm, branches=3, start="near_one"))
    layer = HadamardDense(4, branches=3, norm=norm, start="near_one")
    theirs = jax.jit(layer.init)(key(), jnp.zeros((1, 6)))["params"]
    part = "norm" if norm else "affine"
    biases = [params[part]["bias"].reshape(3, 4) for params in (ours, theirs)]
    np.testing.assert_array_equal(biases[1][0], 0)
    if norm:
        np.testing.assert_allclose(biases[0], biases[1], rtol=1e-4)
    else:  # ours are shifted from random biases
        np.testing.assert_allclose(biases[0][1:].mean(), biases[1][1:].mean(), atol=0.3)
    assert (biases[1][1:] > 1.4).all()


def test_branches_are_drawn_independently() -> None:
    kernel = HadamardDense(64).init(key(), jnp.zeros((1, 64)))["params"]["affine"]["kernel"]
    first, second = jnp.split(kernel, 2, axis=1)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1


def test_bad_arguments_are_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="unknown activation 'tahn'; did you mean 'tanh'"):
        HadamardDense(4, "tahn")
    with pytest.raises(TypeError, match="activation must be a name or a function, got 3"):
        HadamardDense(4, 3)
    with pytest.raises(ValueError, match="at least 2 branches, got 1"):
        HadamardDense(4, branches=1)
    with pytest.raises(ValueError, match="norm must be one of None, 'layer' here, got 'batch'"):
        HadamardDense(4, norm="batch")
    with pytest.raises(ValueError, match="unknown start 'scaled'"):
        HadamardDense(4, start="scaled")
    with pytest.raises(TypeError, match="must be a HadamardLinear or HadamardConv2d, got Hadamard"):
        params_of(Hadamard(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="norm must be over the features"):
        params_of(HadamardConv2d(2, 3, 3, norm="layer_map"))
