"""ReDo: neurons that hardly contribute are reinitialized, with outgoing weights of zero.

A neuron's score is its mean absolute output over a batch, divided by its layer's mean. A neuron
whose score is at most tau is recycled: its incoming weights are reinitialized, its outgoing
weights are set to zero, and the optimizer's moments of both are set to zero. One neuron of a
product layer is the same row of every branch; one neuron of a concatenated activation is both of
its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.compute.flat import moments
from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.nets.hidden import Hidden


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
        self.network, self.optimizer = network, optimizer
        self.tau, self.period, self.seed = tau, period, seed
        self.recycled = 0
        """Neurons recycled the last time."""

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Recycle if it is time; neurons are scored on the batch ``obs``."""
        if updates % self.period:
            return
        scores = neuron_scores(self.network, obs)
        # Seeded by the number of updates, so that a resumed run draws the same weights.
        with seeded(child_seed(self.seed, 4, updates)):
            self.recycled = sum(
                self._recycle(layer, score <= self.tau) for layer, score in scores.items()
            )

    @torch.no_grad()
    def _recycle(self, hidden: Hidden, is_low: Tensor) -> int:
        """Recycle the neurons whose every output has a low score; return their number."""
        rows = hidden.affine.get_parameter("weight").shape[0]
        count = min(rows, len(is_low))
        recycled = is_low.view(-1, count).all(0)
        if not bool(recycled.any()):
            return 0
        new_parameters = dict(hidden.draw().named_parameters())
        incoming = recycled.repeat(rows // count)
        for name, parameter in hidden.layer.named_parameters():
            parameter[incoming] = new_parameters[name].to(parameter.device)[incoming]
            for moment in moments(self.optimizer, parameter):
                moment[incoming] = 0
        outputs = recycled.repeat(len(is_low) // count)
        for reader in hidden.readers:
            weight = reader.get_parameter("weight")
            for tensor in (weight, *moments(self.optimizer, weight)):
                if tensor.dim() == 2:  # columns of flattened images: by position, then channel
                    tensor.view(len(tensor), -1, len(outputs))[:, :, outputs] = 0
                else:
                    tensor[:, outputs] = 0
        return int(recycled.sum())


def build(network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int) -> ReDo:
    """Return ReDo for an agent's network and the optimizer of that network."""
    return ReDo(network, optimizer, config.tau, config.period, seed)


@torch.no_grad()
def neuron_scores(network: nn.Module, obs: Tensor) -> dict[Hidden, Tensor]:
    """Return each hidden layer's scores: a neuron's mean absolute output over the layer's mean."""
    scores: dict[Hidden, Tensor] = {}

    def record_scores(layer: nn.Module, _: object, output: Tensor) -> None:
        assert isinstance(layer, Hidden)
        magnitude = output.abs().transpose(0, 1).flatten(1).mean(1)
        scores[layer] = magnitude / magnitude.mean().clamp_min(1e-9)

    handles = [
        m.register_forward_hook(record_scores) for m in network.modules() if isinstance(m, Hidden)
    ]
    try:
        network(obs)
    finally:
        for handle in handles:
            handle.remove()
    return scores
