"""Layer resets: now and then, the last layers are drawn anew.

Every few updates the output layers, and as many hidden layers before them as set, get new random
weights, and the optimizer's moments of these become zero.

Nikishin et al., "The Primacy Bias in Deep Reinforcement Learning", ICML 2022. In the authors'
evgenii-nikishin/rl_with_resets, SPR on Atari 100k resets the output layer, with its optimizer's
state, and not the target network: four times, every 20,000 steps of two updates each
(discrete_control/configs/SPR_with_resets.gin). Ours: 20,000 updates, which makes four resets in a
run of 100,000 updates, and resets go on to the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.compute.flat import moments
from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.plasticity._layers import fresh_parameters, hidden_layers

EXCLUDES = {"plasticity_injection": "a reset would undo what the injection keeps, the predictions"}
_PURPOSE = 31
"""Of the random numbers, see ``child_seed``."""


@dataclass(frozen=True)
class Config:
    """The settings of layer resets."""

    hidden: int = 0
    """How many hidden layers are reset together with the output layers, from the last one on."""
    period: int = 20_000
    """Gradient updates between resets."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.not_negative(self, "hidden", section="layer-resets")
        require.positive(self, "period", section="layer-resets")


class LayerResets:
    """Resets a network's last layers every ``period`` updates."""

    def __init__(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
    ) -> None:
        self.network, self.optimizer, self.config, self.seed = network, optimizer, config, seed
        self.names = _reset_names(network, config.hidden)
        """The parameters that are reset."""

    @torch.no_grad()
    def __call__(self, updates: int, obs: Tensor) -> None:
        """Reset if it is time."""
        del obs
        if updates % self.config.period:
            return
        parameters = dict(self.network.named_parameters())
        with seeded(child_seed(self.seed, _PURPOSE, updates)):
            fresh = fresh_parameters(self.network)
        for name in self.names:
            parameter = parameters[name]
            parameter.copy_(fresh[name])
            for moment in moments(self.optimizer, parameter):
                moment.zero_()


def _reset_names(network: nn.Module, hidden: int) -> list[str]:
    """Return the parameters of the output layers and of the last hidden layers.

    A network with an encoder for each of two outputs has the last layers of both reset.
    """
    layers = hidden_layers(network)
    inputs = {id(part) for layer in layers for part in layer.parts}
    chosen: list[nn.Module] = [
        reader for layer in layers for reader in layer.readers if id(reader) not in inputs
    ]
    depth = 0
    chosen_layers: list[int] = []
    frontier = {id(module) for module in chosen}
    while depth < hidden:
        behind = [
            layer
            for layer in layers
            if id(layer) not in chosen_layers and {id(r) for r in layer.readers} & frontier
        ]
        if not behind:
            raise ValueError(
                f"--layer-resets.hidden {hidden} is more than the network's hidden layers: it "
                f"has {depth} in a row"
            )
        chosen_layers += map(id, behind)
        chosen += [part for layer in behind for part in layer.parts]
        frontier = {id(part) for layer in behind for part in layer.parts}
        depth += 1
    ids = {id(parameter) for module in chosen for parameter in module.parameters()}
    return [n for n, p in network.named_parameters() if id(p) in ids and p.requires_grad]


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> LayerResets:
    """Return layer resets for a network and its optimizer."""
    return LayerResets(network, optimizer, config, seed)
