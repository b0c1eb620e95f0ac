"""MR.Q's networks: an encoder that learns to predict, and a policy and two values that read it.

The paper's symbols: zs is the representation of a state, za of an action, zsa of both together.
Norms are LayerNorm without anything to learn; weights start Xavier-uniform, biases at zero.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.core.config import NetSpec
from hadamard.core.returns import alive_before
from hadamard.core.types import EnvSpec
from hadamard.layers import Conv2dBranch, LinearBranch
from hadamard.layers.pixels import of_pixels
from hadamard.layers.widened import weight_count
from hadamard.nets.hidden import Hidden

CHANNELS = 32
# Kernels are 3 x 3.
STRIDES = (2, 2, 2, 1)
REWARD_BINS = 65
NORM_EPSILON = 1e-5
"""As in the public implementation."""


@dataclass(frozen=True)
class Widths:
    """How wide everything but zs is; the encoder: its dense layers on the way to zs and zsa."""

    action: int
    state_action: int
    encoder: int
    value: int
    policy: int

    @classmethod
    def around(cls, hidden: int) -> Widths:
        """Return the paper's proportions, whose hidden layers are all 512 wide."""
        return cls(max(1, hidden // 2), hidden, hidden, hidden, hidden)


class TwoHot(nn.Module):
    """Numbers as probabilities of the two bins they lie between; bins are dense around zero."""

    bins: Tensor

    def __init__(self, count: int = REWARD_BINS, largest: float = 10.0) -> None:
        super().__init__()
        place = torch.linspace(-largest, largest, count)
        self.register_buffer("bins", place.sign() * place.abs().expm1(), persistent=False)

    def encode(self, value: Tensor) -> Tensor:
        """Return the probabilities (..., bins); beyond the outermost bins is at them."""
        # How much of each gap between bins lies below the value: 1s, then a share, then 0s.
        below = ((value[..., None] - self.bins[:-1]) / self.bins.diff()).clamp(0, 1)
        return F.pad(below, (1, 0), value=1.0) - F.pad(below, (0, 1))

    def decode(self, probability: Tensor) -> Tensor:
        """Return the numbers that the probabilities mean."""
        return (probability * self.bins).sum(-1)


def normal(x: Tensor) -> Tensor:
    """Bring the features to mean 0 and variance 1."""
    return F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)


def linear(
    inputs: int, outputs: int, *, bias: bool = True, seen: int = 0, made: int = 0
) -> nn.Linear:
    """Return a map drawn as a part of one that sees and makes that many features in all."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    bound = math.sqrt(2) * math.sqrt(6 / ((seen or inputs) + (made or outputs)))
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
                f"--net.norm {net.norm}: mrq's dense layers are always normalised and its "
                "convolutions never; leave it none"
            )
        self.image = len(env.obs_shape) == 3
        inner = CHANNELS if self.image else width
        if net.layer == "widened":
            inner = matched_inner(env, net, inner)
        plan = state_plan(env, net, inner)
        chosen = chosen_layers(plan, net)
        varied = {"widened": "plain", "hadamard2": "hadamard"}.get(net.layer, net.layer)
        self.layers = nn.ModuleList()
        planned = self.outputs = plan[0].inputs
        for i, recipe in enumerate(plan):
            # A variant may hand on more features than planned: crelu twice as many.
            recipe = recipe.varied(inputs=recipe.inputs * self.outputs // planned)
            layer = Hidden(varied if i in chosen else "plain", recipe, "xavier")
            # Of these only zs is marked for the diagnosis: feature maps are large.
            self.layers.append(layer if i == len(plan) - 1 else layer.layer)
            planned, self.outputs = recipe.outputs, layer.outputs

    def forward(self, obs: Tensor) -> Tensor:
        """Encode a batch of observations as they come from the environment."""
        first, *inner = self.layers[:-1]
        x = of_pixels(first, obs) if self.image else first(obs.float())
        for layer in inner:
            x = layer(x)
        zs: Tensor = self.layers[-1](x.flatten(1))
        return zs


def state_plan(env: EnvSpec, net: NetSpec, inner: int) -> list[Conv2dBranch | LinearBranch]:
    """Return the recipes of the plain state encoder with that many channels (features) inside."""
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


def chosen_layers(plan: Sequence[Conv2dBranch | LinearBranch], net: NetSpec) -> list[int]:
    """Return which layers the variant takes."""
    everything = range(len(plan))
    if net.layer == "hadamard2":
        return list(everything[-2:])
    if net.where in ("last", "all"):
        return list(everything[-1:] if net.where == "last" else everything)
    kind = Conv2dBranch if net.where == "conv" else LinearBranch
    chosen = [i for i in everything if isinstance(plan[i], kind)]
    if not chosen:
        raise ValueError("--net.where conv: observations that are vectors meet no convolution")
    return chosen


def matched_inner(env: EnvSpec, net: NetSpec, inner: int) -> int:
    """Return how wide a plain state encoder must be inside to weigh what the Hadamard one does.

    zs keeps its width, so that nothing behind the encoder changes: instead all convolutions get
    more channels, and the dense layer with them more inputs (of a vector: both inner layers).

    Examples:
        >>> pixels = EnvSpec((9, 84, 84), torch.uint8, frames=3, action_size=6)
        >>> matched_inner(pixels, NetSpec(where="all"), 32)
        62
    """
    plan = state_plan(env, net, inner)
    chosen = chosen_layers(plan, net)
    heavy = sum(weight_count(recipe) * (1 + (i in chosen)) for i, recipe in enumerate(plan))

    def weights(width: int) -> int:
        return sum(weight_count(recipe) for recipe in state_plan(env, net, width))

    above = inner + bisect_left(range(inner, 4 * inner), heavy, key=weights)
    return min(above - 1, above, key=lambda width: abs(weights(width) - heavy))


class StateActionEncoder(nn.Module):
    """zsa, from zs and an action. Its first layer reads zs and za side by side."""

    def __init__(self, state: int, actions: int, widths: Widths) -> None:
        super().__init__()
        width, seen = widths.encoder, state + widths.action
        self.action = linear(actions, widths.action)
        self.from_action = linear(widths.action, width, seen=seen)
        self.from_state = linear(state, width, seen=seen, bias=False)
        self.hidden = linear(width, width)
        recipe = LinearBranch(width, widths.state_action, activation="identity")
        self.zsa = Hidden("plain", recipe, "xavier")

    def brought(self, action: Tensor) -> Tensor:
        """Return what actions add to the first layer, whatever the states are."""
        share: Tensor = self.from_action(F.elu(self.action(action)))
        return share

    def forward(self, zs: Tensor, brought: Tensor) -> Tensor:
        """Encode states with what their actions brought."""
        first = F.elu(normal(torch.addmm(brought, zs, self.from_state.weight.T)))
        zsa: Tensor = self.zsa(F.elu(normal(self.hidden(first))))
        return zsa


class Encoder(nn.Module):
    """zs and zsa, and what is predicted from zsa: the next zs, the reward, and the end."""

    def __init__(self, env: EnvSpec, net: NetSpec, widths: Widths) -> None:
        super().__init__()
        state = StateEncoder(env, net, widths.encoder)
        zs = state.outputs
        self.state_action = StateActionEncoder(zs, env.action_size, widths)
        # After zsa: the last of the marked layers is the one that reports call the representation,
        # and the layer variants are in the state's encoder.
        self.state = state
        # One linear model: its parts are drawn as one map.
        made = 1 + zs + REWARD_BINS
        self.next_state = linear(widths.state_action, zs, made=made)
        self.outcome = linear(widths.state_action, 1 + REWARD_BINS, made=made)
        self.reward = TwoHot()

    def both(self, zs: Tensor, action: Tensor) -> Tensor:
        """Return zsa."""
        zsa: Tensor = self.state_action(zs, self.state_action.brought(action))
        return zsa

    def states(self, obs: Tensor) -> Tensor:
        """Return zs of observations (batch, steps, ...)."""
        zs: Tensor = self.state(obs.flatten(0, 1))
        return zs.view(*obs.shape[:2], -1)

    def predict(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what comes of actions (batch, steps, ...), as ``unroll`` does."""
        return self.unroll(self.state(obs), action)

    def unroll(self, zs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict the steps that actions (batch, steps, ...) lead through, in latent space alone.

        Returns the next zs, done and the rewards' logits of every step, each (steps, batch, ...).
        """
        states, both = [], []
        for brought in self.state_action.brought(action.transpose(0, 1)):
            zsa = self.state_action(zs, brought)
            zs = self.next_state(zsa)
            both.append(zsa)
            states.append(zs)
        outcome = self.outcome(torch.stack(both))
        return torch.stack(states), outcome[..., 0], outcome[..., 1:]

    def losses(
        self, predictions: Sequence[Tensor], reward: Tensor, terminated: Tensor, following: Tensor
    ) -> dict[str, Tensor]:
        """Compare predictions, as ``unroll`` makes them, with what followed: (batch, steps, ...).

        Each loss is a mean over the batch, summed over the steps. Nothing was seen after an end,
        and what is handed over for it need not even be a number.
        """
        predicted, done, logits = predictions
        alive, reward, ends = alive_before(terminated).T, reward.T, terminated.T.to(predicted.dtype)
        aim = torch.where(alive[..., None] > 0, following.transpose(0, 1), 0.0)
        log_chance = logits.log_softmax(-1)
        surprise = -(self.reward.encode(reward) * log_chance).sum(-1)
        wrong = (self.reward.decode(log_chance.detach().exp()) - reward).abs()
        return {
            "dynamics_loss": ((predicted - aim).square().mean(-1) * alive).mean(1).sum(),
            "reward_loss": (surprise * alive).mean(1).sum(),
            "done_loss": ((done - ends).square() * alive).mean(1).sum(),
            "reward_error": (wrong * alive).sum() / alive.sum(),
        }


class Policy(nn.Module):
    """From zs to an action, before the tanh."""

    def __init__(self, state: int, actions: int, width: int) -> None:
        super().__init__()
        self.first, self.second = linear(state, width), linear(width, width)
        self.action = linear(width, actions)

    def forward(self, zs: Tensor) -> Tensor:
        """Return the action before its tanh."""
        h = F.relu(normal(self.first(zs)))
        pre: Tensor = self.action(F.relu(normal(self.second(h))))
        return pre


class Pair(nn.Module):
    """Two dense layers side by side: weight (2, inputs, outputs), bias (2, 1, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        drawn = torch.stack([linear(inputs, outputs).weight.detach().T for _ in range(2)])
        self.weight = nn.Parameter(drawn.contiguous())
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
            h = F.elu(normal(layer(h)))
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
        """Return the policy's actions, and their values (of both networks, the mean)."""
        zs = self.encoder.state(obs)
        action = self.policy(zs).tanh()
        return action, self.values(self.encoder.both(zs, action)).mean(0)


class LearningState(nn.Module):
    """Numbers that learning carries along, on its device."""

    reward_scale: Tensor
    target_reward_scale: Tensor
    ended: Tensor

    MEASURED = ("reward_scale", "dynamics_loss", "reward_loss", "done_loss", "reward_error")

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ended", torch.tensor(False))
        self.register_buffer("target_reward_scale", torch.ones(()))
        for name in self.MEASURED:
            self.register_buffer(
                name, torch.ones(()) if name == "reward_scale" else torch.zeros(())
            )

    def keep(self, metrics: Mapping[str, Tensor]) -> None:
        """Remember what the last encoder update measured."""
        for name, value in metrics.items():
            self.get_buffer(name).copy_(value)

    def measured(self) -> dict[str, Tensor]:
        """Return what is worth a row of the log."""
        return {name: self.get_buffer(name).clone() for name in self.MEASURED}
