"""MR.Q's networks: an encoder trained to predict, and a policy and two values on top of it.

The paper's symbols: zs is the representation of a state, za of an action, zsa of both together.
Norms are LayerNorm without parameters; weights start Xavier-uniform, biases at zero.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import Conv2dBranch, LinearBranch
from hadamard.layers.pixels import apply_to_pixels
from hadamard.layers.widened import weight_count
from hadamard.nets.hidden import Hidden

CHANNELS = 32
STRIDES = (2, 2, 2, 1)
"""Of the convolutions, whose kernels are 3 x 3."""
REWARD_BINS = 65
NORM_EPSILON = 1e-5
"""As in the public implementation."""


@dataclass(frozen=True)
class Widths:
    """Widths of all layers but zs; ``encoder`` is that of the dense layers before zs and zsa."""

    action: int
    state_action: int
    encoder: int
    value: int
    policy: int

    @classmethod
    def from_hidden(cls, hidden: int) -> Widths:
        """Return the paper's proportions; its hidden layers are 512 wide."""
        return cls(max(1, hidden // 2), hidden, hidden, hidden, hidden)


def normalize(x: Tensor) -> Tensor:
    """Normalize the features to mean 0 and variance 1."""
    return F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)


def linear(
    inputs: int, outputs: int, *, bias: bool = True, fan_in: int = 0, fan_out: int = 0
) -> nn.Linear:
    """Return a linear map, drawn as a part of a larger one if its fan-in or fan-out is given."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    bound = math.sqrt(2) * math.sqrt(6 / ((fan_in or inputs) + (fan_out or outputs)))
    nn.init.uniform_(layer.weight, -bound, bound)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class StateEncoder(nn.Module):
    """zs: four convolutions and a dense layer for images, three dense layers for vectors."""

    def __init__(self, env: EnvSpec, net: NetSpec, width: int) -> None:
        super().__init__()
        if net.norm != "none":
            raise ValueError(
                f"--net.norm {net.norm}: mrq's dense layers are always normalized and its "
                "convolutions never; leave it none"
            )
        self.image = len(env.obs_shape) == 3
        inner = CHANNELS if self.image else width
        if net.layer == "hadamax":
            raise ValueError(
                "--net.layer hadamax: mrq's encoder has convolutions of its own, with strides that "
                "are not pooled; choose hadamard, or train dqn, ppo or pqn"
            )
        if net.layer == "widened":
            inner = matched_inner_width(env, net, inner)
        plan = state_plan(env, net, inner)
        with_variant = variant_layers(plan, net)
        variant = {"widened": "plain", "hadamard2": "hadamard"}.get(net.layer, net.layer)
        self.layers = nn.ModuleList()
        planned = self.outputs = plan[0].inputs
        for i, recipe in enumerate(plan):
            # A variant may have more outputs than planned: crelu has twice as many.
            recipe = recipe.varied(inputs=recipe.inputs * self.outputs // planned)
            layer = Hidden(variant if i in with_variant else "plain", recipe, "xavier")
            # Only zs is marked for the diagnosis: feature maps are large.
            self.layers.append(layer if i == len(plan) - 1 else layer.layer)
            planned, self.outputs = recipe.outputs, layer.outputs

    def forward(self, obs: Tensor) -> Tensor:
        """Encode a batch of observations as they come from the environment."""
        first, *inner = self.layers[:-1]
        x = apply_to_pixels(first, obs) if self.image else first(obs.float())
        for layer in inner:
            x = layer(x)
        zs: Tensor = self.layers[-1](x.flatten(1))
        return zs


def state_plan(env: EnvSpec, net: NetSpec, inner: int) -> list[Conv2dBranch | LinearBranch]:
    """Return the recipes of the plain state encoder with ``inner`` channels (features) inside."""
    shape, plan = env.obs_shape, list[Conv2dBranch | LinearBranch]()
    norm: dict[str, Any] = {"norm": "layer", "affine_norm": False, "norm_epsilon": NORM_EPSILON}
    dense = LinearBranch(1, net.width, net.activation, **norm)
    if len(shape) == 1:
        return [
            dense.varied(inputs=shape[0], outputs=inner),
            dense.varied(inputs=inner, outputs=inner),
            dense.varied(inputs=inner),
        ]
    if len(shape) != 3:
        raise ValueError(f"no encoder for observations of shape {shape}: vectors and images only")
    features, size = shape[0], list(shape[1:])
    for stride in STRIDES:
        plan.append(Conv2dBranch(features, inner, net.activation, kernel_size=3, stride=stride))
        features, size = inner, [(extent - 3) // stride + 1 for extent in size]
    if min(size) < 1:
        raise ValueError(f"images of {shape[1]} x {shape[2]} are too small for mrq's encoder")
    return [*plan, dense.varied(inputs=features * math.prod(size))]


def variant_layers(plan: Sequence[Conv2dBranch | LinearBranch], net: NetSpec) -> list[int]:
    """Return the indices of the layers that get the layer variant."""
    indices = range(len(plan))
    if net.layer == "hadamard2":
        return list(indices[-2:])
    if net.where in ("last", "all"):
        return list(indices[-1:] if net.where == "last" else indices)
    kind = Conv2dBranch if net.where == "conv" else LinearBranch
    chosen = [i for i in indices if isinstance(plan[i], kind)]
    if not chosen:
        raise ValueError(
            "--net.where conv: vector observations have no convolutions, choose last or all"
        )
    return chosen


def matched_inner_width(env: EnvSpec, net: NetSpec, inner: int) -> int:
    """Return the inner width that gives a plain state encoder as many weights as the Hadamard one.

    zs keeps its width, so that nothing after the encoder changes. Instead all convolutions get
    more channels, hence the dense layer more inputs (for vectors: both inner layers are wider).

    Examples:
        >>> pixels = EnvSpec((9, 84, 84), torch.uint8, frames=3, action_size=6)
        >>> matched_inner_width(pixels, NetSpec(where="all"), 32)
        62
    """
    plan = state_plan(env, net, inner)
    with_variant = variant_layers(plan, net)
    target = sum(weight_count(recipe) * (1 + (i in with_variant)) for i, recipe in enumerate(plan))

    def weights(width: int) -> int:
        return sum(weight_count(recipe) for recipe in state_plan(env, net, width))

    above = inner + bisect_left(range(inner, 4 * inner), target, key=weights)
    return min(above - 1, above, key=lambda width: abs(weights(width) - target))


class StateActionEncoder(nn.Module):
    """zsa, from zs and an action; its first layer reads zs and za, concatenated."""

    def __init__(self, state: int, actions: int, widths: Widths) -> None:
        super().__init__()
        width, fan_in = widths.encoder, state + widths.action
        self.action = linear(actions, widths.action)
        self.from_action = linear(widths.action, width, fan_in=fan_in)
        self.from_state = linear(state, width, fan_in=fan_in, bias=False)
        self.hidden = linear(width, width)
        recipe = LinearBranch(width, widths.state_action, activation="identity")
        self.zsa = Hidden("plain", recipe, "xavier")

    def embed_action(self, action: Tensor) -> Tensor:
        """Return what actions add to the first layer, whatever the state is."""
        embedding: Tensor = self.from_action(F.elu(self.action(action)))
        return embedding

    def forward(self, zs: Tensor, action_embedding: Tensor) -> Tensor:
        """Return zsa."""
        first = F.elu(normalize(torch.addmm(action_embedding, zs, self.from_state.weight.T)))
        zsa: Tensor = self.zsa(F.elu(normalize(self.hidden(first))))
        return zsa


class Encoder(nn.Module):
    """zs and zsa, and predictions from zsa: the next zs, the reward, and whether the task ends."""

    def __init__(self, env: EnvSpec, net: NetSpec, widths: Widths) -> None:
        super().__init__()
        state = StateEncoder(env, net, widths.encoder)
        zs = state.outputs
        self.state_action = StateActionEncoder(zs, env.action_size, widths)
        # Registered after zsa: reports call the last marked layer the representation, and the layer
        # variants are in the state's encoder.
        self.state = state
        # Two parts of one linear map, and initialized as such.
        fan_out = 1 + zs + REWARD_BINS
        self.next_state = linear(widths.state_action, zs, fan_out=fan_out)
        self.outcome = linear(widths.state_action, 1 + REWARD_BINS, fan_out=fan_out)

    def zsa(self, zs: Tensor, action: Tensor) -> Tensor:
        """Return zsa."""
        zsa: Tensor = self.state_action(zs, self.state_action.embed_action(action))
        return zsa

    def encode_steps(self, obs: Tensor) -> Tensor:
        """Return zs of observations (batch, steps, ...)."""
        zs: Tensor = self.state(obs.flatten(0, 1))
        return zs.view(*obs.shape[:2], -1)

    def predict(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict the steps that actions (batch, steps, ...) lead to, as ``unroll`` does."""
        return self.unroll(self.state(obs), action)

    def unroll(self, zs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict the steps that actions (batch, steps, ...) lead to, each from the predicted zs.

        Returns the next zs, done and the rewards' logits of every step, each (steps, batch, ...).
        """
        next_states, zsas = [], []
        for action_embedding in self.state_action.embed_action(action.transpose(0, 1)):
            zsa = self.state_action(zs, action_embedding)
            zs = self.next_state(zsa)
            zsas.append(zsa)
            next_states.append(zs)
        outcome = self.outcome(torch.stack(zsas))
        return torch.stack(next_states), outcome[..., 0], outcome[..., 1:]


class Policy(nn.Module):
    """From zs to an action, before the tanh."""

    def __init__(self, state: int, actions: int, width: int) -> None:
        super().__init__()
        self.first, self.second = linear(state, width), linear(width, width)
        self.action = linear(width, actions)

    def forward(self, zs: Tensor) -> Tensor:
        """Return the action before its tanh."""
        h = F.relu(normalize(self.first(zs)))
        pre: Tensor = self.action(F.relu(normalize(self.second(h))))
        return pre


class Pair(nn.Module):
    """Two dense layers computed together: weight (2, inputs, outputs), bias (2, 1, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        weight = torch.stack([linear(inputs, outputs).weight.detach().T for _ in range(2)])
        self.weight = nn.Parameter(weight.contiguous())
        self.bias = nn.Parameter(torch.zeros(2, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map (2, batch, inputs) to (2, batch, outputs)."""
        return torch.baddbmm(self.bias, x, self.weight)


class Values(nn.Module):
    """Two values of zsa, computed together."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.ModuleList([Pair(inputs, width), Pair(width, width), Pair(width, width)])
        self.value = Pair(width, 1)

    def forward(self, zsa: Tensor) -> Tensor:
        """Return both values, (2, batch)."""
        h = zsa.expand(2, -1, -1)
        for layer in self.hidden:
            h = F.elu(normalize(layer(h)))
        values: Tensor = self.value(h)
        return values.squeeze(-1)


class Network(nn.Module):
    """Encoder, policy and values."""

    def __init__(self, env: EnvSpec, net: NetSpec, widths: Widths) -> None:
        super().__init__()
        self.encoder = Encoder(env, net, widths)
        self.policy = Policy(self.encoder.state.outputs, env.action_size, widths.policy)
        self.values = Values(widths.state_action, widths.value)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's actions, and the mean of their two values."""
        zs = self.encoder.state(obs)
        action = self.policy(zs).tanh()
        return action, self.values(self.encoder.zsa(zs, action)).mean(0)
