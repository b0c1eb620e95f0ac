"""UPGD: useful weights are protected from updates, useless ones are perturbed.

A weight's utility is a running mean of -gradient * weight, the first-order change of the loss if
the weight were removed. Its gate 2 * (1 - sigmoid(utility / largest utility)) scales both the
optimizer's update and added Gaussian noise, so a weight of no utility takes the whole step.

Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual
Learning", ICLR 2024. In the authors' mohmdelsayed/upgd, core/run/rl (adaupgd.py for the update,
with Adam, and ppo_continuous_action_upgd.py for the defaults), the gate has the factor 2, as in the
README, and gradients are clipped before utilities see them. Their supervised experiments
(core/optim) have no factor. Ours: the update is that of the algorithm's own optimizer, without
their weight decay of 0.001; and where no utility is above zero, nothing is protected.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.compute.draws import normals
from hadamard.core import require
from hadamard.core.random import child_seed
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {
    "nap": "the projection rescales the weights that UPGD protects",
    "weight_clipping": "clipping changes the weights that UPGD protects",
}
_PURPOSE = 34
"""Of the random numbers, see ``child_seed``."""
_SEED, _UPDATES = "seed", "updates"


@dataclass(frozen=True)
class Config:
    """UPGD's settings."""

    decay: float = 0.999
    """How much of the utility so far is kept in an update."""
    noise: float = 0.001
    """Deviation of the noise, which the learning rate scales as it scales gradients."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.fraction(self, "decay", section="upgd")
        require.not_negative(self, "noise", section="upgd")


class UPGD:
    """Gates the optimizer's updates by the weights' utilities."""

    def __init__(self, network: nn.Module, config: Config, seed: int) -> None:
        self.config = config
        parameters = {n: p.detach() for n, p in network.named_parameters() if p.requires_grad}
        device = next(iter(parameters.values())).device
        self.state = {
            _SEED: torch.tensor(child_seed(seed, _PURPOSE), device=device),
            _UPDATES: torch.zeros((), dtype=torch.int64, device=device),
        }
        for name, parameter in parameters.items():
            self.state[f"utility of {name}"] = torch.zeros_like(parameter)
            self.state[f"{name} before"] = parameter.clone()

    def change_gradients(self, weights: Tensors, gradients: Tensors, state: Tensors) -> None:
        """Update the utilities and keep the weights as they are before the step."""
        for name, gradient in gradients.items():
            state[f"utility of {name}"].lerp_(-gradient * weights[name], 1 - self.config.decay)
        for name, weight in weights.items():  # those without a gradient may have changed as well
            state[f"{name} before"].copy_(weight)

    def change_weights(self, weights: Tensors, state: Tensors, rates: Tensor) -> None:
        """Take the gated part of the step, and of the noise."""
        state[_UPDATES].add_(1)
        utilities = {n: u for n in weights if (u := state.get(f"utility of {n}")) is not None}
        # The largest of the whole network; the correction of means that start from zero cancels.
        largest = torch.stack([u.flatten(1).amax(1) for u in utilities.values()]).amax(0)
        noise = self._noise(weights, state)
        for name, utility in utilities.items():
            shape = (-1,) + (1,) * (utility.dim() - 1)
            scale = largest.view(shape)
            # No utility is above zero before the first gradient: then nothing is protected.
            relative = torch.where(scale > 0, utility / scale, torch.zeros_like(utility))
            gate = 2 * (1 - torch.sigmoid(relative))
            before, weight = state[f"{name} before"], weights[name]
            step = weight - before - rates.to(weight.dtype).view(shape) * noise[name]
            weight.copy_(before + gate * step)

    def _noise(self, weights: Tensors, state: Tensors) -> dict[str, Tensor]:
        """Return noise for all weights, by the seed and the number of updates."""
        sizes = [weight[0].numel() for weight in weights.values()]
        lanes = sum(sizes) + sum(sizes) % 2
        draws = self.config.noise * normals(state[_SEED], state[_UPDATES], 1, lanes).squeeze(1)
        parts = draws.split([*sizes, lanes - sum(sizes)], dim=1)
        return {
            name: part.reshape(weight.shape).to(weight.dtype)
            for (name, weight), part in zip(weights.items(), parts, strict=False)
        }


def build(network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int) -> UPGD:
    """Return UPGD for a network as it is now."""
    del optimizer
    return UPGD(network, config, seed)
