"""Shrink and perturb: now and then, all weights shrink, and a share of new random ones is added.

Every few updates w becomes shrink * w + perturb * (weights drawn anew). The optimizer's moments
become zero.

Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020: 0.4 of the weights and 0.1
of those of a new network (JordanAsh/warm_start, run.py). D'Oro et al., "Sample-Efficient
Reinforcement Learning by Breaking the Replay Ratio Barrier", ICLR 2023, in deep RL: 0.8 and 0.2 for
the encoder, every 5,000 steps of eight updates each, while the other layers are reset (SR_SPR.gin
of bigger_better_faster, read in a copy of that repository). Ours: all layers are treated alike, the
period, and that parameters which no layer can draw anew (a policy's deviations) stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.compute.flat import moments
from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.plasticity._layers import fresh_parameters

EXCLUDES = {"nap": "the projection undoes the shrinking"}
_PURPOSE = 30
"""Of the random numbers, see ``child_seed``."""


@dataclass(frozen=True)
class Config:
    """The settings of shrink and perturb."""

    shrink: float = 0.8
    """What the weights are multiplied with."""
    perturb: float = 0.2
    """What the new random weights are multiplied with."""
    period: int = 20_000
    """Gradient updates between perturbations."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.fraction(self, "shrink", section="shrink-and-perturb")
        require.not_negative(self, "perturb", section="shrink-and-perturb")
        require.positive(self, "period", section="shrink-and-perturb")


class ShrinkAndPerturb:
    """Shrinks and perturbs a network every ``period`` updates."""

    def __init__(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
    ) -> None:
        self.network, self.optimizer, self.config, self.seed = network, optimizer, config, seed
        with seeded(seed):
            fresh_parameters(network)  # an error now if a layer cannot be drawn

    @torch.no_grad()
    def __call__(self, updates: int, obs: Tensor) -> None:
        """Shrink and perturb if it is time."""
        del obs
        if updates % self.config.period:
            return
        parameters = dict(self.network.named_parameters())
        with seeded(child_seed(self.seed, _PURPOSE, updates)):
            fresh = fresh_parameters(self.network)
        for name, value in fresh.items():
            parameter = parameters[name]
            parameter.mul_(self.config.shrink)
            parameter.add_(value.to(parameter.device), alpha=self.config.perturb)
            for moment in moments(self.optimizer, parameter):
                moment.zero_()


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> ShrinkAndPerturb:
    """Return shrink and perturb for a network and its optimizer."""
    return ShrinkAndPerturb(network, optimizer, config, seed)
