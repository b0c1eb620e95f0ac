"""NaP: norms in every hidden layer, whose weights keep their initial norm.

With a norm before its activation, a layer's output does not depend on the scale of its weights, but
its effective learning rate falls as they grow. So after every update the weights of each hidden
layer are rescaled to the norm they had at the start, and so are the norms' scales and shifts, as
one vector.

Lyle et al., "Normalization and Effective Learning Rates in Reinforcement Learning", NeurIPS 2024
(normalize-and-project): the output layer is left free, and projections after each update and after
1,000 gave nearly the same. No code of the authors is known; this is from an audit of the paper,
SlopDotCash/asi, docs/research/nap-qualification.md. Ours: the norms are the network's own
(--net.norm layer), the branches of a product are rescaled each by itself, and biases before a norm
stay, unprojected, where the paper removes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.core import require
from hadamard.plasticity._layers import NORMS, hidden_layers
from hadamard.plasticity._remedies import Tensors

EXCLUDES = {"l2_init": "the projection to a norm undoes the pull toward the initial weights"}
_TINY = 1e-12
"""Smallest norm that is divided by."""


@dataclass(frozen=True)
class Config:
    """NaP's settings."""

    period: int = 1
    """Gradient updates between projections."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.positive(self, "period", section="nap")


class NaP:
    """Projects the weights back to their initial norm."""

    def __init__(self, network: nn.Module, config: Config) -> None:
        self.config = config
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        """By the name of its state: how many branches share them, and the parameters that are
        rescaled as one vector."""
        without: list[str] = []
        for layer in hidden_layers(network):
            norms = [part for part in layer.parts if isinstance(part, NORMS)]
            if not layer.normalized:
                without.append(layer.name)
            for affine in layer.affines:
                name = names[id(affine.get_parameter("weight"))]
                self.groups[name] = layer.branches, (name,)
            for norm in norms:
                own = tuple(names[id(p)] for p in norm.parameters(recurse=False))
                if own:
                    self.groups[own[0]] = layer.branches, own
        if without:
            raise ValueError(
                "nap needs a norm before the activation of every hidden layer, and there is none "
                f"after {', '.join(without)}: add --net.norm layer --net.where all, or, in a "
                "network of your own, nn.LayerNorm"
            )
        self.state = {"updates": torch.zeros((), dtype=torch.int64)}
        parameters = {n: p.detach().unsqueeze(0) for n, p in network.named_parameters()}
        for name, (branches, own) in self.groups.items():
            self.state[name] = _norm_of(parameters, own, branches)[0]
        device = next(iter(parameters.values())).device
        self.state["updates"] = self.state["updates"].to(device)

    def change_weights(self, weights: Tensors, state: Tensors, rates: Tensor) -> None:
        """Rescale the weights, if it is time."""
        del rates
        state["updates"].add_(1)
        due = (state["updates"] % self.config.period == 0).view(-1, 1)
        for name, (branches, own) in self.groups.items():
            present = _norm_of(weights, own, branches)
            factor = torch.where(due, state[name] / present.clamp_min(_TINY), 1.0)
            for part in own:
                tensor = weights[part]
                shape = (*factor.shape, *(1,) * (tensor.dim() - 1))
                rows = tensor.unflatten(1, (branches, -1))
                rows.mul_(factor.view(shape))


def _norm_of(weights: Tensors, names: tuple[str, ...], branches: int) -> Tensor:
    """Return the norm of some parameters as one vector, (networks, branches)."""
    squares = [
        weights[name].unflatten(1, (branches, -1)).flatten(2).square().sum(2) for name in names
    ]
    return torch.stack(squares).sum(0).sqrt()


def build(network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int) -> NaP:
    """Return NaP for a network as it is now."""
    del optimizer, seed
    return NaP(network, config)
