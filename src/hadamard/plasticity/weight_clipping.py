"""Weight clipping: no weight grows beyond a multiple of its layer's initial range.

After every update each weight is clipped to [-kappa * s, kappa * s], where s is the range of the
layer's initial weights.

Elsayed, Lan, Lyle and Mahmood, "Weight Clipping for Deep Continual and Reinforcement Learning", RLJ
2024. In the authors' mohmdelsayed/weight-clipping, kappa is 3 for PPO
(rl_experiments/ppo_continuous_action_clipped.py) and tuned from 1 to 5 in supervised learning; s is
1 / sqrt(inputs), PyTorch's own range, for weights and biases. Ours: s is the largest initial weight
of the layer, whatever its initializer, and holds for its biases too, which often start at zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {"nap": "both set the size of the weights"}


@dataclass(frozen=True)
class Config:
    """The settings of weight clipping."""

    kappa: float = 3.0
    """Largest weight, as a multiple of the layer's largest initial weight."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.above_zero(self, "kappa", section="weight-clipping")


class WeightClipping:
    """Clips the weights after every update."""

    def __init__(self, network: nn.Module, config: Config) -> None:
        self.config = config
        self.state: dict[str, Tensor] = {}
        """The range of each parameter's layer, with as many dimensions as the parameter."""
        for prefix, module in network.named_modules():
            own = dict(module.named_parameters(recurse=False))
            largest = [float(p.detach().abs().max()) for p in own.values() if p.numel()]
            for name, parameter in own.items():
                if parameter.requires_grad and max(largest, default=0.0) > 0:
                    place = f"{prefix}.{name}" if prefix else name
                    self.state[place] = parameter.new_full((1,) * parameter.dim(), max(largest))

    def change_weights(self, weights: Tensors, state: Tensors, rates: Tensor) -> None:
        """Clip the weights."""
        del rates
        for name, size in state.items():
            bound = self.config.kappa * size
            weights[name].copy_(torch.clamp(weights[name], -bound, bound))


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> WeightClipping:
    """Return weight clipping for a network as it is now."""
    del optimizer, seed
    return WeightClipping(network, config)
