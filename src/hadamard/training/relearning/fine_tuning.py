"""Fine-tuning of many networks at once, each with a new last layer."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.compute.stack import StackedModules
from hadamard.core.random import child_seed, seeded
from hadamard.nets.encoders import Encoder
from hadamard.training.relearning.budget import Budget

_SEED = 31
"""Of all random numbers: the same for every network, so that they compare."""


class Regressor(nn.Module):
    """A network's encoder with a new last layer, which is drawn alike for all networks."""

    def __init__(self, encoder: Encoder, outputs: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        device = next(encoder.parameters()).device
        with seeded(child_seed(_SEED, 0)):
            self.head = nn.Linear(encoder.outputs, outputs).to(device)

    def forward(self, obs: Tensor) -> Tensor:
        """Predict the targets."""
        predicted: Tensor = self.head(self.encoder(obs))
        return predicted


class _Learner:
    """A regressor with its loss, as ``StackedModules`` wants it."""

    def __init__(self, network: Regressor) -> None:
        self.network = network

    def predict(self, obs: Tensor) -> Tensor:
        predicted: Tensor = self.network(obs)
        return predicted

    def loss(self, obs: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(self.predict(obs), target)


def fine_tune(
    networks: Sequence[nn.Module],
    obs: Tensor,
    target: Tensor,
    budget: Budget,
) -> list[float | None]:
    """Fine-tune copies of networks; return the share of the targets' variance that each explains.

    It is 1 for exact predictions and 0 for predictions as good as the mean; None where learning
    diverged, or where all targets are the same. ``obs`` and ``target`` are (networks, count, ...).
    """
    learners = [
        _Learner(Regressor(network.get_submodule("encoder"), target.shape[2]))  # type: ignore[arg-type]
        for network in networks
    ]
    stack = StackedModules(learners, ["network"])
    weights = stack.parameters("network")
    gradients = stack.gradients("loss", "network")
    optimizer = torch.optim.Adam(list(weights.values()), budget.learning_rate)
    generator = torch.Generator().manual_seed(child_seed(_SEED, 1))
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(budget.updates):
        if len(order) < budget.batch_size:
            order = torch.randperm(obs.shape[1], generator=generator)
        batch, order = order[: budget.batch_size].to(obs.device), order[budget.batch_size :]
        by_name, _, _ = gradients(obs[:, batch], target[:, batch])
        for name, weight in weights.items():
            weight.grad = by_name[name]
        optimizer.step()
    return [value if math.isfinite(value) else None for value in _explained(stack, obs, target)]


@torch.no_grad()
def _explained(stack: StackedModules, obs: Tensor, target: Tensor) -> list[float]:
    """Return the explained variance of each network over all its observations."""
    predict = stack.over_agents("predict")
    predicted = torch.cat([predict(part) for part in obs.split(512, 1)], 1)
    error = (predicted - target).double().square().mean((1, 2))
    variance = target.double().var(1, correction=0).mean(1)
    explained = torch.where(variance > 1e-9, 1 - error / variance, math.nan)
    values: list[float] = explained.tolist()
    return values
