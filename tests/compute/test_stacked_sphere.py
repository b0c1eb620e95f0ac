"""Several agents' steps on the sphere, made at once, are those of each alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard.compute import optimizers
from hadamard.compute.sphere import SphereAdam
from hadamard.compute.stack import StackedModules
from hadamard.compute.stacked_sphere import StackedSphereAdam

RATES = 1e-2, 3e-2, 1e-3
SHAPES = {"one": (2, 5, 3), "two": (4, 6), "three": (3,), "four": ()}


class Agent:
    """Some weights, of which the first two belong on the sphere, and targets for them."""

    def __init__(self, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.network, self.target = nn.Module(), nn.Module()
        for name, shape in SHAPES.items():
            for module in (self.network, self.target):
                value = torch.randn(shape, generator=draw, dtype=torch.float64)
                module.register_parameter(name, nn.Parameter(value))
        weights = list(self.network.parameters())
        self.optimizer = SphereAdam(weights, lr=RATES[seed], sphere=weights[:2], fused=True)

    def learn(self, gradients: list[Tensor], targets: bool) -> None:
        for parameter, gradient in zip(self.network.parameters(), gradients, strict=True):
            parameter.grad = gradient
        if targets:
            self.optimizer.step_with_targets([p.data for p in self.target.parameters()], 0.1)
        else:
            self.optimizer.step()


def stacked(agents: list[Agent], targets: bool) -> tuple[StackedModules, StackedSphereAdam]:
    stack = StackedModules(agents, ["network", "target"])
    moved = list(stack.parameters("target").values()) if targets else None
    own = [agent.optimizer for agent in agents]
    return stack, StackedSphereAdam(stack.parameters("network"), own, moved, 0.1)


@pytest.mark.parametrize("targets", [True, False])
def test_a_step_of_all_agents_is_the_step_of_each(targets: bool) -> None:
    agents, alone = ([Agent(seed) for seed in range(3)] for _ in range(2))
    for seed, agent in enumerate(alone):  # they have learned for different times
        for _ in range(seed):
            gradients = [torch.ones_like(p) for p in agent.network.parameters()]
            agents[seed].learn(gradients, targets)
            agent.learn(copy.deepcopy(gradients), targets)
    stack, optimizer = stacked(agents, targets)
    assert optimizer.steps.tolist() == [0, 1, 2]
    rates = torch.tensor(RATES, dtype=torch.float64)
    for _ in range(20):
        gradients = {n: torch.randn((3, *s), dtype=torch.float64) for n, s in SHAPES.items()}
        optimizer.step(gradients, rates)
        for index, agent in enumerate(alone):
            agent.learn([gradient[index].clone() for gradient in gradients.values()], targets)
    for ours, theirs in zip(agents, alone, strict=True):
        for module in ("network", "target"):
            expected = dict(getattr(theirs, module).named_parameters())
            for name, weight in getattr(ours, module).named_parameters():
                torch.testing.assert_close(weight, expected[name], rtol=1e-12, atol=1e-12)
        states: list[Any] = [
            optimizers.OptimizerState(agent.optimizer).state_dict() for agent in (ours, theirs)
        ]
        torch.testing.assert_close(*(s["state"] for s in states), rtol=1e-12, atol=1e-12)
    for name, weight in stack.parameters("network").items():
        lengths = weight.square().sum(-2).sqrt() if name in ("one", "two") else torch.ones(())
        torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_an_agents_moments_are_rows_of_the_stack() -> None:
    agents = [Agent(seed) for seed in range(3)]
    _, optimizer = stacked(agents, targets=True)
    agents[1].learn([torch.ones_like(p) for p in agents[1].network.parameters()], False)
    for moments in (*optimizer.mean, *optimizer.mean_square):
        assert [bool(row.any()) for row in moments] == [False, True, False]
    saved = [optimizers.OptimizerState(agent.optimizer).state_dict() for agent in agents]
    again = [Agent(seed) for seed in range(3)]
    for agent, state in zip(again, saved, strict=True):
        optimizers.OptimizerState(agent.optimizer).load_state_dict(copy.deepcopy(state))
    _, restored = stacked(again, targets=True)
    for ours, theirs in zip(restored.mean, optimizer.mean, strict=True):
        assert torch.equal(ours, theirs)
