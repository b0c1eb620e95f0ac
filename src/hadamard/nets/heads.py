"""Heads on an encoder: action values, or a policy with a value."""

from __future__ import annotations

from torch import Tensor, nn

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.nets.encoders import Encoder, make_encoder
from hadamard.nets.hidden import Init, initialize


class QNetwork(nn.Module):
    """One value for each action."""

    def __init__(self, env: EnvSpec, net: NetSpec, init: Init = "default") -> None:
        super().__init__()
        self.encoder: Encoder = make_encoder(env, net, init)
        self.values = nn.Linear(self.encoder.outputs, env.num_actions)
        initialize(self.values, init, gain=1.0)
        self.encoder.layers[-1].readers.append(self.values)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the values of all actions, (batch, actions)."""
        values: Tensor = self.values(self.encoder(obs))
        return values


class ActorCritic(nn.Module):
    """Logits of a categorical policy, and the state's value, on a shared encoder."""

    def __init__(self, env: EnvSpec, net: NetSpec, init: Init = "orthogonal") -> None:
        super().__init__()
        self.encoder: Encoder = make_encoder(env, net, init)
        self.logits = nn.Linear(self.encoder.outputs, env.num_actions)
        self.value = nn.Linear(self.encoder.outputs, 1)
        initialize(self.logits, init, gain=0.01)
        initialize(self.value, init, gain=1.0)
        self.encoder.layers[-1].readers += [self.logits, self.value]

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (batch, actions) and values (batch,)."""
        z = self.encoder(obs)
        return self.logits(z), self.value(z).squeeze(1)
