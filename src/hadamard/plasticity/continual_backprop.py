"""Continual backprop: a few of the least useful neurons are replaced all the time.

A neuron's utility is a running mean of |output| times the sum of its outgoing weights' absolute
values. Of the neurons that are old enough, a small share per update is replaced: those of the least
utility get new incoming weights and outgoing weights of zero.

Dohare et al., "Loss of Plasticity in Deep Continual Learning", Nature 2024. In the authors'
shibhansh/loss-of-plasticity the decay is 0.99 (lop/rl/run_ppo.py), and in reinforcement learning
the replacement rate is 1e-4 and maturity comes after 10,000 updates (lop/rl/cfg/ant/cbp.yml, with
this utility). Ours: utilities are measured every few updates (there: in each), with the decay
applied at each measurement; a neuron of a product is measured after the product and replaced in all
branches; what a replaced neuron added to the next layer on average is not moved to that layer's
biases; and the optimizer's moments become zero (there: not with PPO, issue 10).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.plasticity._layers import HiddenLayer, hidden_layers
from hadamard.plasticity._recycling import (
    columns_by_output,
    mean_magnitudes,
    recycle,
    representations,
)

_PURPOSE = 33
"""Of the random numbers, see ``child_seed``."""


@dataclass(frozen=True)
class Config:
    """The settings of continual backprop."""

    rate: float = 1e-4
    """Share of the mature neurons of a layer that is replaced per update."""
    maturity: int = 10_000
    """Updates before a new neuron can be replaced."""
    decay: float = 0.99
    """How much of the utility so far is kept at a measurement."""
    period: int = 10
    """Gradient updates between measurements."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.fraction(self, "rate", "decay", section="continual-backprop")
        require.not_negative(self, "maturity", section="continual-backprop")
        require.positive(self, "period", section="continual-backprop")


class ContinualBackprop:
    """Measures utilities and replaces neurons."""

    def __init__(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
    ) -> None:
        self.network, self.optimizer, self.config, self.seed = network, optimizer, config, seed
        self.replaced = 0
        """Neurons replaced the last time."""
        self.state: dict[str, Tensor] = {}
        for layer in hidden_layers(network):
            weight = layer.affines[0].get_parameter("weight").detach()
            self.state |= {
                f"{layer.name} utility": weight.new_zeros(layer.count),
                # On the CPU: how many neurons are due must be known without waiting for a GPU.
                f"{layer.name} age": torch.zeros(layer.count, dtype=torch.int64),
                f"{layer.name} due": torch.zeros((), dtype=torch.float64),
            }

    @torch.no_grad()
    def __call__(self, updates: int, obs: Tensor) -> None:
        """Measure, and replace the neurons that are due, if it is time."""
        if updates % self.config.period:
            return
        with seeded(child_seed(self.seed, _PURPOSE, updates)):
            magnitudes = representations(self.network, obs, mean_magnitudes)
            self.replaced = sum(self._act_on(layer, own) for layer, own in magnitudes.items())

    def _act_on(self, layer: HiddenLayer, magnitudes: Tensor) -> int:
        """Measure one layer's utilities and replace what is due; return how many neurons."""
        c = self.config
        utility, age, due = (
            self.state[f"{layer.name} {what}"] for what in ("utility", "age", "due")
        )
        utility.lerp_(self._contribution(layer, magnitudes), 1 - c.decay)
        age += c.period
        mature = age > c.maturity
        due += c.rate * c.period * int(mature.sum())
        number = min(int(due), int(mature.sum()))
        if not number:
            return 0
        # Utilities start from zero, so those of younger neurons are corrected as Adam's moments.
        measured = (age // c.period).to(utility.device)
        corrected = utility / (1 - c.decay**measured).clamp_min(1e-9)
        corrected[~mature.to(utility.device)] = torch.inf
        least = corrected.topk(number, largest=False).indices
        chosen = torch.zeros_like(utility, dtype=torch.bool)
        chosen[least] = True
        recycle(layer, chosen, self.optimizer)
        utility[chosen] = 0
        age[chosen.cpu()] = 0
        due -= number
        return number

    def _contribution(self, layer: HiddenLayer, magnitudes: Tensor) -> Tensor:
        """Return each neuron's magnitude times its outgoing weights, over all of its outputs."""
        outputs = len(magnitudes)
        outgoing = torch.zeros_like(magnitudes)
        for reader in layer.readers:
            weight = reader.get_parameter("weight")
            columns = columns_by_output(weight, outputs, channels_last=layer.channels_last)
            outgoing += columns.abs().transpose(0, 1).flatten(1).sum(1)
        return (magnitudes * outgoing).view(-1, layer.count).sum(0)


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> ContinualBackprop:
    """Return continual backprop for a network and its optimizer."""
    return ContinualBackprop(network, optimizer, config, seed)
