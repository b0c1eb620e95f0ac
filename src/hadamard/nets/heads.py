"""Heads on an encoder: action values, or a policy with a value."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.learning.normalize import LARGEST, ObservationNormalizer
from hadamard.learning.policies import CategoricalPolicy, GaussianPolicy, Policy
from hadamard.nets.encoders import Encoder, make_encoder
from hadamard.nets.hidden import Head, Init


class QNetwork(nn.Module):
    """One value for each action."""

    def __init__(self, env: EnvSpec, net: NetSpec, init: Init = "default") -> None:
        super().__init__()
        self.encoder: Encoder = make_encoder(env, net, init)
        self.values = Head(self.encoder.outputs, env.num_actions)
        self.values.initialize(init)
        self.encoder.layers[-1].readers.append(self.values)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the values of all actions, (batch, actions)."""
        values: Tensor = self.values(self.encoder(obs))
        return values


class ActorCritic(nn.Module):
    """A policy's parameters, and the state's value, on a shared encoder or on one for each.

    The policy's Gaussians, where actions are vectors, have deviations that no observation changes.
    With ``normalize``, vectors of observations are normalized by the statistics that the learner
    updates.
    """

    def __init__(
        self,
        env: EnvSpec,
        net: NetSpec,
        init: Init = "orthogonal",
        *,
        shared: bool = True,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        # Before the policy's encoder, which is thus the last one and diagnosed by default.
        self.value_encoder: Encoder | None = None if shared else make_encoder(env, net, init)
        self.encoder: Encoder = make_encoder(env, net, init)
        self.policy: type[Policy] = GaussianPolicy if env.continuous else CategoricalPolicy
        self.logits = Head(self.encoder.outputs, env.action_size or env.num_actions)
        """Logits of discrete actions, or the means of continuous ones."""
        self.value = Head(self.encoder.outputs, 1)
        self.logits.initialize(init, gain=0.01)
        self.value.initialize(init)
        self.encoder.layers[-1].readers.append(self.logits)
        (self.value_encoder or self.encoder).layers[-1].readers.append(self.value)
        if env.continuous:
            self.log_deviation = nn.Parameter(torch.zeros(1, env.action_size))
        normalizes = normalize and len(env.obs_shape) == 1
        self.normalizer = ObservationNormalizer(env.obs_shape) if normalizes else None

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's parameters (batch, parameters) and values (batch,)."""
        if self.normalizer is not None:
            obs = self.normalizer(obs).clamp(-LARGEST, LARGEST)
        z = self.encoder(obs)
        parameters = self.logits(z)
        value: Tensor = self.value(z if self.value_encoder is None else self.value_encoder(obs))
        if self.policy is GaussianPolicy:
            parameters = torch.cat([parameters, self.log_deviation.expand_as(parameters)], 1)
        return parameters, value.squeeze(1)
