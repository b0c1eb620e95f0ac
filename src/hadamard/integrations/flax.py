"""Flax: the Hadamard layer in JAX, equal to ours on the same weights.

from hadamard.integrations.flax import HadamardConv, HadamardDense

layer = HadamardDense(512)  # in place of nn.Dense and an activation
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from torch import Tensor

from hadamard.layers import HadamardConv2d, HadamardLinear
from hadamard.layers.branch import check_branch_count
from hadamard.layers.norm import EPSILON
from hadamard.layers.start import shift_towards_one
from hadamard.text import unknown

_ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "relu": nn.relu,
    "tanh": jnp.tanh,
    "elu": nn.elu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "silu": nn.silu,
    "sigmoid": nn.sigmoid,
    "leaky_relu": nn.leaky_relu,
    "softplus": nn.softplus,
    "identity": lambda x: x,
}


class _Product(nn.Module):
    """The product of branches, computed with one affine map; see ``hadamard.layers``.

    ``activation`` is a name or a function of arrays. ``norm="layer"`` normalizes each branch over
    its features. ``start`` is ``"paper"``, where all branches are drawn alike, or ``"near_one"``.
    """

    features: int
    activation: str | Callable[[jax.Array], jax.Array] = "tanh"
    branches: int = 2
    norm: Literal["layer"] | None = None
    start: Literal["paper", "near_one"] = "paper"
    kernel_init: Callable[..., Any] = nn.initializers.lecun_normal()

    def __post_init__(self) -> None:
        check_branch_count(self.branches)
        if isinstance(self.activation, str) and self.activation not in _ACTIVATIONS:
            raise ValueError(unknown("activation", self.activation, _ACTIVATIONS))
        if not callable(self.activation) and not isinstance(self.activation, str):
            raise TypeError(f"activation must be a name or a function, got {self.activation!r}")
        if self.norm not in (None, "layer"):
            raise ValueError(f"norm must be one of None, 'layer' here, got {self.norm!r}")
        if self.start not in ("paper", "near_one"):
            raise ValueError(unknown("start", str(self.start), ["paper", "near_one"]))
        super().__post_init__()

    def _multiplied(self, x: jax.Array, affine: Callable[..., nn.Module]) -> jax.Array:
        f = _ACTIVATIONS[self.activation] if isinstance(self.activation, str) else self.activation
        shift = self._shift(f)
        plain, shifted = (
            nn.initializers.zeros,
            lambda _key, shape, dtype=jnp.float32: (
                jnp.full(shape, shift, dtype).reshape(self.branches, -1).at[0].set(0).reshape(shape)
            ),
        )
        h = affine(
            features=self.branches * self.features,
            kernel_init=self.kernel_init,
            bias_init=plain if self.norm else shifted,
            name="affine",
        )(x)
        h = h.reshape(*h.shape[:-1], self.branches, self.features)
        if self.norm:
            norm = nn.LayerNorm(
                EPSILON,
                reduction_axes=-1,
                feature_axes=(-2, -1),
                bias_init=shifted,
                name="norm",
            )
            h = norm(h)
        return f(h).prod(axis=-2)

    def _shift(self, f: Callable[[jax.Array], jax.Array]) -> float:
        if self.start == "paper":
            return 0.0
        with jax.ensure_compile_time_eval():
            return shift_towards_one(lambda x: float(f(jnp.float32(x))), str(self.activation))


class HadamardDense(_Product):
    """In place of ``nn.Dense`` and an activation."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Multiply the branches of the last axis."""
        return self._multiplied(x, nn.Dense)


class HadamardConv(_Product):
    """In place of ``nn.Conv`` and an activation; channels are the last axis."""

    kernel_size: Sequence[int] = (3, 3)
    strides: int | Sequence[int] = 1
    padding: str | int | Sequence[Any] = "VALID"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Multiply the branches of the channels."""

        def convolution(**options: Any) -> nn.Module:
            return nn.Conv(
                kernel_size=tuple(self.kernel_size),
                strides=self.strides,
                padding=self.padding,
                **options,
            )

        return self._multiplied(x, convolution)


def params_of(layer: HadamardLinear | HadamardConv2d) -> dict[str, dict[str, Any]]:
    """Return the weights of one of our layers as parameters of the same layer in Flax.

    The norm, if there is one, must be over the features.
    """
    if not isinstance(layer, HadamardLinear | HadamardConv2d):
        raise TypeError(
            f"layer must be a HadamardLinear or HadamardConv2d, got {type(layer).__name__}"
        )
    weight = _array(layer.affine.get_parameter("weight"))
    kernel = weight.T if weight.ndim == 2 else weight.transpose(2, 3, 1, 0)
    affine = {"kernel": jnp.asarray(kernel)}
    bias = layer.affine.bias
    affine["bias"] = jnp.zeros(len(weight)) if bias is None else jnp.asarray(_array(bias))
    if layer.norm is None:
        return {"affine": affine}
    if getattr(layer.norm, "over", "features") != "features" or layer.norm.weight is None:
        raise ValueError("the norm must be over the features and have a learned scale")
    scale, shift = (_array(layer.norm.get_parameter(name)) for name in ("weight", "bias"))
    shape = (layer.branch_count, layer.outputs)
    norm = {"scale": jnp.asarray(scale.reshape(shape)), "bias": jnp.asarray(shift.reshape(shape))}
    return {"affine": affine, "norm": norm}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    assert isinstance(tensor, Tensor)
    array: np.ndarray[Any, Any] = tensor.detach().float().cpu().numpy()
    return array
