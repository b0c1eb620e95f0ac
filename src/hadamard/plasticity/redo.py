"""ReDo: neurons that hardly contribute are drawn anew, and start with no influence.

A neuron's score is its mean absolute output over a batch, relative to the layer's mean; at most
tau, and it is recycled: its incoming weights are drawn again, its outgoing ones set to zero, and
the optimiser forgets both. A neuron is what the layer hands on: for a product, the same row of
every branch; for a concatenated activation, both of its sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hadamard.core.flat import moments
from hadamard.core.random import child_seed, seeded
from hadamard.nets.hidden import Hidden


class ReDo:
    """Recycles the neurons of a network's hidden layers every ``period`` updates."""

    def __init__(
        self,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        tau: float = 0.025,
        period: int = 1_000,
        seed: int = 0,
    ) -> None:
        self.network, self.optimiser = network, optimiser
        self.tau, self.period, self.seed = tau, period, seed
        self.recycled = 0
        """Neurons recycled the last time."""

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Recycle if it is time; ``obs`` is the batch that neurons are judged on."""
        if updates % self.period:
            return
        scores = neuron_scores(self.network, obs)
        # Drawn from the update's number, so that a resumed run draws the same.
        with seeded(child_seed(self.seed, 4, updates)):
            self.recycled = sum(
                self._recycle(layer, score <= self.tau) for layer, score in scores.items()
            )

    @torch.no_grad()
    def _recycle(self, hidden: Hidden, low: Tensor) -> int:
        """Draw the neurons anew whose every output is low; return how many there were."""
        rows = hidden.affine.get_parameter("weight").shape[0]
        count = min(rows, len(low))
        chosen = low.view(-1, count).all(0)
        if not bool(chosen.any()):
            return 0
        fresh = dict(hidden.draw().named_parameters())
        incoming = chosen.repeat(rows // count)
        for name, parameter in hidden.layer.named_parameters():
            parameter[incoming] = fresh[name].to(parameter.device)[incoming]
            for moment in moments(self.optimiser, parameter):
                moment[incoming] = 0
        outputs = chosen.repeat(len(low) // count)
        for reader in hidden.readers:
            weight = reader.get_parameter("weight")
            for tensor in (weight, *moments(self.optimiser, weight)):
                if tensor.dim() == 2:  # of a flattened image: all channels of each position
                    tensor.view(len(tensor), -1, len(outputs))[:, :, outputs] = 0
                else:
                    tensor[:, outputs] = 0
        return int(chosen.sum())


@torch.no_grad()
def neuron_scores(network: nn.Module, obs: Tensor) -> dict[Hidden, Tensor]:
    """Return each hidden layer's scores: a neuron's mean absolute output over the layer's mean."""
    scores: dict[Hidden, Tensor] = {}

    def keep(layer: nn.Module, _: object, output: Tensor) -> None:
        assert isinstance(layer, Hidden)
        size = output.abs().transpose(0, 1).flatten(1).mean(1)
        scores[layer] = size / size.mean().clamp_min(1e-9)

    handles = [m.register_forward_hook(keep) for m in network.modules() if isinstance(m, Hidden)]
    try:
        network(obs)
    finally:
        for handle in handles:
            handle.remove()
    return scores
