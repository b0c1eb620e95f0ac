"""Agents that learn as one computation are the agents that each would be alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard.compute import optimizers
from hadamard.compute.flat import FlatParameters
from hadamard.compute.stack import Stack, StackedAdam, clipped
from hadamard.layers.conv import Conv2d
from tests.support.updates import GRID, agent_of, batch_of

RATES = 1e-3, 3e-3, 2e-4
COUNT = len(RATES)
COPY_PERIOD = 20
"""Updates between copies to the target network."""

MAIN = {"layer": "hadamard", "activation": "tanh", "norm": "layer", "where": "all"}
VARIANTS: dict[str, Mapping[str, str]] = {
    "relu": {"layer": "plain", "activation": "relu"},
    "tanh": {"layer": "plain", "activation": "tanh", "norm": "layer", "where": "all"},
    "hadamard": {"layer": "hadamard", "activation": "tanh"},
    "hadamard relu": {"layer": "hadamard", "activation": "relu", "norm": "layer_map"},
    "hadamard2": {"layer": "hadamard2", "activation": "tanh"},
    "crelu": {"layer": "crelu", "activation": "relu", "where": "all"},
    "layernorm": {"layer": "layernorm", "activation": "relu"},
    "widened": {"layer": "widened", "activation": "tanh", "norm": "layer"},
}


def agents_of(algorithm: str, net: Mapping[str, str], dtype: torch.dtype) -> list[Any]:
    """Agents with different seeds and learning rates."""
    shared: dict[str, Any] = {f"net.{name}": value for name, value in net.items()}
    shared |= {"net.width": 8, "train.fleet": "on"}
    return [
        agent_of(algorithm, dtype, {**shared, "seed": seed, "algo.learning_rate": rate})
        for seed, rate in enumerate(RATES)
    ]


def batches_of(algorithm: str, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
    """A batch for every agent."""
    return [
        tuple(part.to(dtype) if part.is_floating_point() else part for part in batch_of(algorithm))
        for _ in range(COUNT)
    ]


def assert_learns_as_alone(algorithm: str, net: Mapping[str, str], updates: int) -> None:
    """Compare the weights and moments of stacked and separate agents, in double precision."""
    dtype = torch.float64
    stacked, alone = (agents_of(algorithm, net, dtype) for _ in range(2))
    starts = [agent.weights.vector.detach().clone() for agent in alone]
    assert not torch.equal(starts[0], starts[1])
    frozen = ["target"] if algorithm == "dqn" else []
    stack = Stack(stacked, frozen)
    optimizer, gradient_of = StackedAdam(stack, stacked), stack.gradient("_loss")
    rates = torch.tensor(RATES, dtype=dtype)
    for update in range(updates):
        batches = batches_of(algorithm, dtype)
        gradient, loss, _ = gradient_of(
            *(torch.stack(parts) for parts in zip(*batches, strict=True))
        )
        with torch.no_grad():
            if algorithm != "dqn":
                gradient, norm = clipped(gradient, stacked[0].config.max_grad_norm)
            optimizer.step(gradient, rates)
        for index, (agent, batch) in enumerate(zip(alone, batches, strict=True)):
            metrics = agent.learn(*batch)
            # PPO's loss is a sum of terms of either sign, which may be almost 0.
            assert abs(loss[index] - metrics["loss"]) <= 1e-10 * max(1, abs(metrics["loss"]))
            if algorithm == "pqn":
                assert abs(norm[index] - metrics["gradient_norm"]) <= 1e-10 * norm[index]
        if algorithm == "dqn" and update % COPY_PERIOD == 7:
            for name, weight in stack.weights["network"].items():
                stack.weights["target"][name].copy_(weight.detach())
            for agent in alone:
                agent.target.load_state_dict(agent.network.state_dict())
    for ours, theirs, start in zip(stacked, alone, starts, strict=True):
        moved = (theirs.weights.vector.detach() - start).abs().max()
        assert moved > updates * 1e-5
        for part in ("network", *frozen):
            state = getattr(ours, part).state_dict()
            for name, weight in getattr(theirs, part).state_dict().items():
                assert_close(state[name], weight, f"{part}.{name}")
        assert int(ours.optimizer.state_of(ours.weights.vector)["step"]) == updates
        saved = [optimizers.OptimizerState(a.optimizer).state_dict() for a in (ours, theirs)]
        for name in ("step", "exp_avg", "exp_avg_sq"):
            assert_close(saved[0]["state"][0][name], saved[1]["state"][0][name], name)


def assert_close(ours: Tensor, theirs: Tensor, name: str) -> None:
    assert ours.dtype == theirs.dtype, name
    assert (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max(), name


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_thousand_stacked_updates_equal_those_of_each_alone(algorithm: str) -> None:
    assert_learns_as_alone(algorithm, MAIN, 1_000)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_every_network_learns_in_a_stack_as_alone(algorithm: str, variant: str) -> None:
    assert_learns_as_alone(algorithm, VARIANTS[variant], 12)


def test_a_choice_is_made_for_every_agent() -> None:
    agents = agents_of("ppo", MAIN, torch.float32)
    obs = torch.stack([batch_of("ppo", size=20)[0] for _ in agents])
    draws = torch.rand(COUNT, 20, GRID.num_actions)
    expected = [
        agent.choose(*inputs, None) for agent, *inputs in zip(agents, obs, draws, strict=True)
    ]
    stack = Stack(agents)
    choice = stack.over_agents("choose")(obs, draws, torch.zeros(COUNT))
    for name in ("action", "greedy"):
        assert torch.equal(choice[name], torch.stack([one[name] for one in expected]))
    for name in ("value", "log_probability"):
        torch.testing.assert_close(choice[name], torch.stack([one[name] for one in expected]))


def test_an_agents_network_and_optimizer_are_its_rows() -> None:
    agents = agents_of("dqn", MAIN, torch.float32)
    weights = [copy.deepcopy(agent.network.state_dict()) for agent in agents]
    obs = batch_of("dqn")[0]
    values = [agent.network(obs) for agent in agents]
    stack = Stack(agents, ["target"])
    optimizer = StackedAdam(stack, agents)
    for index, agent in enumerate(agents):  # nothing changed by stacking
        assert torch.equal(agent.network(obs), values[index])
        for name, weight in agent.network.state_dict().items():
            assert torch.equal(weight, weights[index][name])
        for name, parameter in agent.network.named_parameters():
            assert torch.equal(stack.weights["network"][name][index], parameter)
            assert torch.equal(stack.weights["target"][name][index], parameter)

    # A change through the network, as a remedy makes it, is one of the stack, and of its row alone.
    others = stack.matrix[[0, 2]].clone()
    with torch.no_grad():
        agents[1].network.values.weight.fill_(7.0)
        agents[1].target.values.bias.fill_(3.0)
    assert (stack.weights["network"]["values.weight"][1] == 7.0).all()
    assert stack.weights["target"]["values.bias"][:, 0].eq(3.0).tolist() == [False, True, False]
    assert torch.equal(stack.matrix[[0, 2]], others)
    agents[2].network.load_state_dict(weights[0])
    assert torch.equal(stack.matrix[2], stack.matrix[0])

    # A change through the stack is one of the network.
    with torch.no_grad():
        stack.matrix.copy_(torch.arange(COUNT).unsqueeze(1).expand_as(stack.matrix))
    for index, agent in enumerate(agents):
        assert all((parameter == index).all() for parameter in agent.network.parameters())
        assert (agent.weights.vector == index).all()

    # So are the moments: those of an update alone are those of the stack, and the reverse.
    agents[1].learn(*batch_of("dqn"))
    assert optimizer.steps.flatten().tolist() == [0.0, 1.0, 0.0]
    assert optimizer.mean.any(1).tolist() == [False, True, False]
    optimizer.step(torch.ones_like(stack.matrix), torch.zeros(COUNT, dtype=torch.float64))
    states = [agent.optimizer.state_of(agent.weights.vector) for agent in agents]
    assert [int(state["step"]) for state in states] == [1, 2, 1]
    for index, state in enumerate(states):
        assert torch.equal(state["exp_avg"], optimizer.mean[index])
        assert torch.equal(state["exp_avg_sq"], optimizer.mean_square[index])


def test_moments_that_were_there_before_are_kept() -> None:
    agents = agents_of("ppo", MAIN, torch.float32)
    for index, agent in enumerate(agents):
        for _ in range(index):
            agent.learn(*batch_of("ppo"))
    saved = [copy.deepcopy(a.optimizer.state_of(a.weights.vector)) for a in agents]
    optimizer = StackedAdam(Stack(agents), agents)
    assert optimizer.steps.flatten().tolist() == [0.0, 1.0, 2.0]
    for index, state in enumerate(saved):
        assert torch.equal(optimizer.mean[index], state["exp_avg"])
        assert torch.equal(optimizer.mean_square[index], state["exp_avg_sq"])
    assert saved[2]["exp_avg"].any()


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(3, 4, 3),
        Conv2d(3, 4, 3, padding=1),
        Conv2d(4, 4, 3, groups=2),
        Conv2d(3, 4, 3, dilation=2),
    ],
    ids=["torch's own", "padded", "grouped", "dilated"],
)
def test_convolutions_that_cannot_be_stacked_are_refused(convolution: nn.Conv2d) -> None:
    def agent() -> Any:
        network = nn.Sequential(copy.deepcopy(convolution), nn.Flatten())
        return SimpleNamespace(network=network, weights=FlatParameters(network))

    with pytest.raises(ValueError, match=r"Conv2d.*cannot be stacked.*--train\.fleet off"):
        Stack([agent(), agent()])


def test_each_agents_gradient_is_clipped_by_its_own_norm() -> None:
    gradient = torch.randn(4, 50, dtype=torch.float64) * torch.tensor(
        [[0.01], [1.0], [30.0], [0.0]]
    )
    scaled, norm = clipped(gradient, 2.0)
    for index, row in enumerate(gradient):
        parameter = nn.Parameter(torch.zeros(50, dtype=torch.float64))
        parameter.grad = row.clone()
        expected = nn.utils.clip_grad_norm_([parameter], 2.0)
        torch.testing.assert_close(scaled[index], parameter.grad, rtol=1e-12, atol=0)
        torch.testing.assert_close(norm[index], expected, rtol=1e-12, atol=0)
    assert torch.equal(scaled[0], gradient[0])
    assert not torch.equal(scaled[2], gradient[2])


class ConvolvingAgent:
    """An agent whose weights lie in memory with channels last, as on a GPU."""

    def __init__(self) -> None:
        layer = Conv2d(3, 4, 3, dtype=torch.float64)
        self.network = nn.Sequential(layer.to(memory_format=torch.channels_last))
        self.weights = FlatParameters(self.network)

    def _loss(self, images: Tensor) -> tuple[Tensor, Tensor]:
        out = self.network(images)
        return (out**3).sum(), out.mean()


def test_gradients_lie_in_memory_as_the_weights_do() -> None:
    agents = [ConvolvingAgent() for _ in range(2)]
    images = torch.randn(2, 5, 3, 6, 6, dtype=torch.float64)
    for agent, own in zip(agents, images, strict=True):
        agent.weights.backward(agent._loss(own)[0])
    assert not agents[0].network[0].weight.is_contiguous()
    gradient, _, _ = Stack(agents).gradient("_loss")(images)
    for row, agent in zip(gradient, agents, strict=True):
        torch.testing.assert_close(row, agent.weights.gradient, rtol=1e-12, atol=1e-12)
