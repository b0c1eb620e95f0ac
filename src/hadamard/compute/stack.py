"""Stacked learning: many agents of one shape as one computation.

The weights of K agents are the rows of one matrix, and so are their optimizers' moments. Each agent
keeps its network and its optimizer, whose memory is its row: it can be diagnosed, saved and changed
by a remedy as if it were alone. An agent's functions of its weights (its loss, its choice of
actions) are evaluated for all agents at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hadamard.compute.adam import Adam, update_
from hadamard.compute.flat import FlatParameters
from hadamard.compute.jit import forget_graphs

Weights = dict[str, dict[str, Tensor]]
"""Stacked weights, each (agents, ...), by network and parameter."""
_EPSILON = 1e-6
"""Added to a gradient's norm before it divides, as in ``FlatParameters.clip``."""


@runtime_checkable
class HasStackedForm(Protocol):
    """A module with a form of its own for stacked weights."""

    stacked: bool


class Stack:
    """The stacked networks of several agents, and functions of them."""

    def __init__(self, agents: Sequence[Any], frozen: Sequence[str] = ()) -> None:
        for agent in agents:  # the weights move
            forget_graphs(agent)
        self.count = len(agents)
        self.matrix, learned = _share_weights(agents)
        self.weights: Weights = {"network": learned}
        for name in frozen:
            self.weights[name] = share_modules([getattr(agent, name) for agent in agents])
        self.frozen = tuple(frozen)
        # The functions are evaluated with an agent that has no weights of its own.
        self.template = copy.copy(agents[0])
        for name in self.weights:
            setattr(self.template, name, _stackable(copy.deepcopy(getattr(agents[0], name))))
        self._layout = _layout(learned, self.matrix.shape[1])

    def over_agents(self, name: str) -> Callable[..., Any]:
        """Return the agents' method of this name with a leading dimension in and out."""
        call = _Call(self.template, name, self._networks())

        def one(weights: Weights, *inputs: Tensor) -> Any:
            return torch.func.functional_call(call, _named(weights), inputs)

        function = torch.vmap(one)
        return lambda *inputs: function(self.weights, *inputs)

    def gradient(self, name: str) -> Callable[..., tuple[Tensor, Tensor, Any]]:
        """Return a function of stacked batches: gradients (agents, weights), losses and the rest.

        The agents' method returns the loss first, and one more value.
        """
        call = _Call(self.template, name, self._networks())

        def loss(learned: dict[str, Tensor], rest: Weights, *batch: Tensor) -> Any:
            return torch.func.functional_call(call, _named({"network": learned, **rest}), batch)

        function = torch.vmap(torch.func.grad_and_value(loss, has_aux=True))

        def stacked(*batch: Tensor) -> tuple[Tensor, Tensor, Any]:
            rest = {name: self.weights[name] for name in self.frozen}
            gradients, (losses, metrics) = function(self.weights["network"], rest, *batch)
            return self._flattened(gradients), losses, metrics

        return stacked

    def _networks(self) -> dict[str, nn.Module]:
        return {name: getattr(self.template, name) for name in self.weights}

    def _flattened(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Lay the gradients out as the rows of the matrix are."""
        pieces = []
        for name, order, gap in self._layout:
            pieces.append(gradients[name].permute(0, *order).flatten(1))
            if gap:
                pieces.append(self.matrix.new_zeros(self.count, gap))
        return torch.cat(pieces, 1)


class StackedAdam:
    """Adam or RAdam for all agents: each has its own number of steps and its own learning rate."""

    def __init__(self, stack: Stack, agents: Sequence[Any]) -> None:
        first: Adam = agents[0].optimizer
        group = first.param_groups[0]
        self.betas: tuple[float, float] = group["betas"]
        self.eps, self.scalars = group["eps"], first.scalars
        self.matrix = stack.matrix
        states = [agent.optimizer.state_of(agent.weights.vector) for agent in agents]
        self.steps = _rows([state["step"].view(1) for state in states])
        self.mean = _rows([state["exp_avg"] for state in states])
        self.mean_square = _rows([state["exp_avg_sq"] for state in states])
        for index, state in enumerate(states):
            state["step"] = self.steps[index, 0]
            state["exp_avg"], state["exp_avg_sq"] = self.mean[index], self.mean_square[index]

    @property
    def tensors(self) -> list[Tensor]:
        """All that a step changes."""
        return [self.matrix, self.steps, self.mean, self.mean_square]

    def step(self, gradient: Tensor, rates: Tensor) -> None:
        """Update all agents' weights; ``rates`` are their learning rates, float64."""
        self.steps += 1
        scalars = self.scalars(self.steps.double(), rates.view(-1, 1), *self.betas, self.eps)
        update_(self.matrix, gradient, self.mean, self.mean_square, *self.betas, *scalars)


def clipped(gradient: Tensor, max_norm: float) -> tuple[Tensor, Tensor]:
    """Scale each agent's gradient down to a largest norm; return them and the norms before."""
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return gradient * (max_norm / (norm + _EPSILON)).clamp_max(1.0), norm.squeeze(1)


class _Call(nn.Module):
    """A method that uses networks as a module, so that the networks' weights can be replaced."""

    def __init__(self, owner: Any, name: str, networks: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.owner, self.name = owner, name
        for name, network in networks.items():
            self.add_module(name, network)

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.owner, self.name)(*inputs)


def _named(weights: Weights) -> dict[str, Tensor]:
    return {
        f"{network}.{name}": weight
        for network, parameters in weights.items()
        for name, weight in parameters.items()
    }


def _stackable(network: nn.Module) -> nn.Module:
    """Put the modules that have one into their form for stacked weights."""
    for module in network.modules():
        if isinstance(module, HasStackedForm):
            module.stacked = True
        if isinstance(module, nn.Conv2d) and (
            not isinstance(module, HasStackedForm)
            or module.padding != (0, 0)
            or module.dilation != (1, 1)
            or module.groups != 1
        ):
            raise ValueError(f"{module} cannot be stacked: train these runs with --train.fleet off")
    return network


@torch.no_grad()
def _rows(vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack([vector.detach() for vector in vectors])


@torch.no_grad()
def _share_weights(agents: Sequence[Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """Move the agents' flat weights into the rows of a matrix; return it and its parameters."""
    flats: list[FlatParameters] = [agent.weights for agent in agents]
    matrix = _rows([flat.vector for flat in flats])
    count, size = matrix.shape
    stacked = {}
    for name, parameter in agents[0].network.named_parameters():
        layout = (count, *parameter.shape), (size, *parameter.stride())
        stacked[name] = matrix.as_strided(*layout, parameter.storage_offset())
    for row, flat in zip(matrix, flats, strict=True):
        for parameter in flat.parameters:
            offset = row.storage_offset() + parameter.storage_offset()
            parameter.data = matrix.as_strided(parameter.shape, parameter.stride(), offset)
        flat.vector.data = row
    return matrix, stacked


def _layout(stacked: Mapping[str, Tensor], size: int) -> list[tuple[str, tuple[int, ...], int]]:
    """Return each parameter's name, its dimensions in memory order and the gap after it."""
    weights = list(stacked.items())
    ends = [weight.storage_offset() for _, weight in weights[1:]] + [size]
    layout = []
    for (name, weight), end in zip(weights, ends, strict=True):
        strides = weight.stride()
        order = sorted(range(1, weight.dim()), key=lambda dim: -strides[dim])
        gap = int(end - weight.storage_offset() - weight[0].numel())
        layout.append((name, tuple(order), gap))
    return layout


@torch.no_grad()
def share_modules(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Move the parameters of modules of one shape into stacked tensors, and return these."""
    stacked = {}
    for name, _ in modules[0].named_parameters():
        parameters = [module.get_parameter(name) for module in modules]
        stacked[name] = _rows(parameters)
        for parameter, row in zip(parameters, stacked[name], strict=True):
            parameter.data = row
    return stacked
