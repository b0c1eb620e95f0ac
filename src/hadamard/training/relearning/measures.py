"""The measures of networks before they relearn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.compute.stack import StackedModules
from hadamard.core.random import child_seed
from hadamard.health import (
    Diagnosis,
    diagnose_together,
    policy_churn,
    random_residuals,
    value_churn,
)
from hadamard.health.network import choose
from hadamard.health.tangent import OBSERVATIONS, kernel, kernel_rank
from hadamard.training.health_stream import hidden_layers
from hadamard.training.relearning.targets import Player

OF_LAYER = (
    "dormant_fraction",
    "tau_dormant_fraction",
    "gradient_dormant_fraction",
    "effective_rank",
    "stable_rank",
    "entropy_rank",
    "hidden_bias_share",
)
"""Measures of the representation, the last hidden layer."""
OF_NETWORK = ("weight_norm", "gradient_norm", "policy_churn", "value_churn", "ntk_rank")
_SEED = 32
"""Of the noise that a diagnosis adds."""
_STEP = 1e-4
"""The length of the step whose churn is measured, as a share of the weights' norm."""


def measure(networks: Sequence[nn.Module], obs: Tensor) -> list[dict[str, float | None] | str]:
    """Return the measures of each network on its own observations, or why it has none.

    The networks keep their weights. Churn is that of one step of gradient descent toward random
    targets on every other observation, on the observations between; the step is a ten-thousandth
    of the weights' norm, so that networks compare.
    """
    noise = [
        torch.Generator(obs.device).manual_seed(child_seed(_SEED, i)) for i, _ in enumerate(obs)
    ]
    diagnoses = diagnose_together(
        networks,
        list(obs),
        hidden_layers(networks[0], "last"),
        generators=noise,
        chosen=choose("gradient", random_residuals),
    )
    stack = StackedModules([_Differentiated(network) for network in networks], ["network"])
    further = [
        {**churn, "ntk_rank": rank}
        for churn, rank in zip(_churn(stack, obs), _ntk_ranks(stack, obs), strict=True)
    ]
    return [
        _numbers(diagnosis, own) if isinstance(diagnosis, Diagnosis) else str(diagnosis)
        for diagnosis, own in zip(diagnoses, further, strict=True)
    ]


def _numbers(diagnosis: Diagnosis, further: dict[str, float | None]) -> dict[str, float | None]:
    layer = diagnosis[-1].to_dict()
    network = {**diagnosis.network, **further}
    return {
        **{key: layer[key] for key in OF_LAYER},
        **{key: network.get(key) for key in OF_NETWORK},
    }


class _Differentiated(Player):
    """A player with the functions of its scores whose gradients are measured."""

    def largest(self, obs: Tensor) -> Tensor:
        return self.scores(obs).amax()

    def residual(self, obs: Tensor, directions: Tensor) -> Tensor:
        return (self.scores(obs) * directions).sum(1).mean()


def _ntk_ranks(stack: StackedModules, obs: Tensor) -> list[float | None]:
    """Return the rank of each network's tangent kernel, as a diagnosis takes it."""
    every = -(-obs.shape[1] // OBSERVATIONS)
    gradient = stack.gradients("largest", "network")
    rows = []
    for place in range(0, obs.shape[1], every):
        by_name, _, _ = gradient(obs[:, place : place + 1])
        rows.append(torch.cat([tensor.flatten(1) for tensor in by_name.values()], 1))
    return [
        kernel_rank(kernel(jacobian)) if bool(torch.isfinite(jacobian).all()) else None
        for jacobian in torch.stack(rows, 1)
    ]


def _churn(stack: StackedModules, obs: Tensor) -> list[dict[str, float | None]]:
    """Return what one step of gradient descent changes in each network's scores."""
    learned_on, other = obs[:, ::2], obs[:, 1::2]
    scores = stack.over_agents("scores")
    with torch.no_grad():
        before = scores(other)
    directions = torch.randn(
        *learned_on.shape[1:2], before.shape[2], generator=torch.Generator().manual_seed(0)
    )
    directions = F.normalize(directions.to(obs.device), dim=1)
    directions = directions.expand(stack.count, *directions.shape)
    gradients, _, _ = stack.gradients("residual", "network")(learned_on, directions)
    weights = stack.parameters("network")
    with torch.no_grad():
        size, slope = (_norms(list(tensors.values())) for tensors in (weights, gradients))
        factor = _STEP * size / slope.clamp_min(1e-30)
        step = {
            name: gradient * factor.view(-1, *[1] * (gradient.dim() - 1))
            for name, gradient in gradients.items()
        }
        kept = {name: weight.clone() for name, weight in weights.items()}
        for name, weight in weights.items():
            weight -= step[name]
        after = scores(other)
        for name, weight in weights.items():
            weight.copy_(kept[name])
    return [_changes(*pair) for pair in zip(before, after, strict=True)]


def _changes(before: Tensor, after: Tensor) -> dict[str, float | None]:
    if not (torch.isfinite(before).all() and torch.isfinite(after).all()):
        return {}
    value = value_churn(before, after)
    finite = value if value < float("inf") else None
    return {"policy_churn": policy_churn(before, after), "value_churn": finite}


def _norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each network's tensors together, (networks,)."""
    return sum(tensor.flatten(1).square().sum(1) for tensor in tensors).sqrt()  # type: ignore[union-attr]
