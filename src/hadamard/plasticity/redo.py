"""ReDo: neurons that hardly contribute are reinitialized, with outgoing weights of zero.

A neuron's score is its mean absolute output over a batch, divided by its layer's mean. A neuron
whose score is at most tau is recycled: its incoming weights are reinitialized, its outgoing
weights are set to zero, and the optimizer's moments of both are set to zero. One neuron of a
product layer is the same row of every branch; one neuron of a concatenated activation is both of
its outputs.

Sokar et al., "The Dormant Neuron Phenomenon in Deep Reinforcement Learning", ICML 2023. There tau
is 0.025 in the default setting and 0.1 in all others (an author in google/dopamine, issue 226); the
period of 1,000 updates is that of the port timoklein/redo, src/config.py. Scores and moments are as
in dopamine/labs/redo/weight_recyclers.py. Ours: neurons are counted after the product of branches,
and new weights and biases are those of the layer's own start (there: Xavier uniform and zero).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.plasticity._layers import HiddenLayer, hidden_layers
from hadamard.plasticity._recycling import mean_magnitudes, recycle, relative, representations

_OTHER_SCORE = "both recycle neurons, by scores that differ"
EXCLUDES = {"regrama": _OTHER_SCORE, "continual_backprop": _OTHER_SCORE}


@dataclass(frozen=True)
class Config:
    """ReDo's settings."""

    tau: float = 0.025
    """Largest score at which a neuron is recycled."""
    period: int = 1_000
    """Gradient updates between recyclings."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.positive(self, "period", section="redo")
        require.not_negative(self, "tau", section="redo")


class ReDo:
    """Recycles the neurons of a network's hidden layers every ``period`` updates."""

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        tau: float = 0.025,
        period: int = 1_000,
        seed: int = 0,
    ) -> None:
        hidden_layers(network)  # an error now if they are not known
        self.network, self.optimizer = network, optimizer
        self.tau, self.period, self.seed = tau, period, seed
        self.recycled = 0
        """Neurons recycled the last time."""

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Recycle if it is time; neurons are scored on the batch ``obs``."""
        if updates % self.period:
            return
        scores = representations(self.network, obs, _scores)
        # Seeded by the number of updates, so that a resumed run draws the same weights.
        with seeded(child_seed(self.seed, 4, updates)):
            self.recycled = sum(
                recycle(layer, self._is_low(layer, score), self.optimizer)
                for layer, score in scores.items()
            )

    def _is_low(self, layer: HiddenLayer, score: Tensor) -> Tensor:
        """Tell which neurons have low scores in all their outputs."""
        is_low: Tensor = (score <= self.tau).view(-1, layer.count).all(0)
        return is_low


def build(network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int) -> ReDo:
    """Return ReDo for an agent's network and the optimizer of that network."""
    return ReDo(network, optimizer, config.tau, config.period, seed)


def neuron_scores(network: nn.Module, obs: Tensor) -> dict[nn.Module, Tensor]:
    """Return each hidden layer's scores: a neuron's mean absolute output over the layer's mean."""
    scores = representations(network, obs, _scores)
    return {layer.output: score for layer, score in scores.items()}


def _scores(output: Tensor) -> Tensor:
    return relative(mean_magnitudes(output))
