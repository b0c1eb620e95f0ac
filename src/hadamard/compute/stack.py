"""Stacked learning: many agents of one shape as one computation.

The weights of K agents are the rows of one matrix, and so are their optimizers' moments. Each agent
keeps its network and its optimizer, whose memory is its row: it can be diagnosed, saved and changed
by a remedy as if it were alone. An agent's functions of its weights (its loss, its choice of
actions) are evaluated for all agents at once.
"""

from __future__ import annotations

import copy
import operator
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


class StackedModules:
    """The stacked modules of several agents, by name, and functions of them.

    With ``one_by_one`` a function is evaluated for one agent after the other, so that its results
    are those of the agent alone to the last bit: a CPU rounds by a number's place in a loop.
    """

    def __init__(
        self, agents: Sequence[Any], names: Sequence[str], *, one_by_one: bool = False
    ) -> None:
        for agent in agents:  # the weights move
            forget_graphs(agent)
        self.count, self.names = len(agents), tuple(names)
        self._chunk = 1 if one_by_one else None
        # The functions are evaluated with an agent that has no weights of its own.
        self.template = _template(agents[0], names)
        self.weights: Weights = {name: self._share(name, agents) for name in names}
        """Parameters and buffers. They are the agents' own, who hold their rows."""

    def parameters(self, part: str) -> dict[str, Tensor]:
        """Return the stacked parameters of a module, or of one inside it (network.actor)."""
        name, _, inner = part.partition(".")
        module = getattr(self.template, name)
        prefix = f"{inner}." if inner else ""
        return {
            parameter: self.weights[name][parameter]
            for parameter, _ in module.named_parameters()
            if parameter.startswith(prefix)
        }

    def over_agents(self, name: str) -> Callable[..., Any]:
        """Return the agents' method of this name with a leading dimension in and out.

        It may be one of their modules' (rewards.update), and may change buffers in place.
        """
        call = _Call(self.template, name, self._modules())

        def one(weights: Weights, *inputs: Any) -> Any:
            return torch.func.functional_call(call, _named(weights), inputs, tie_weights=False)

        function = torch.vmap(one, chunk_size=self._chunk)
        return lambda *inputs: function(self.weights, *inputs)

    def gradients(
        self, name: str, part: str
    ) -> Callable[..., tuple[dict[str, Tensor], Tensor, Any]]:
        """Return a function of stacked batches: gradients, losses and the rest.

        The gradients are those of ``parameters(part)``, by the same names. The agents' method
        returns the loss, or the loss and one more value.
        """
        call = _Call(self.template, name, self._modules())
        module = part.partition(".")[0]

        def loss(learned: dict[str, Tensor], weights: Weights, *batch: Any) -> Any:
            replaced = {**weights, module: {**weights[module], **learned}}
            value = torch.func.functional_call(call, _named(replaced), batch, tie_weights=False)
            return value if isinstance(value, tuple) else (value, ())

        gradient = torch.func.grad_and_value(loss, has_aux=True)
        function = torch.vmap(gradient, chunk_size=self._chunk)

        def stacked(*batch: Any) -> tuple[dict[str, Tensor], Tensor, Any]:
            gradients, (losses, rest) = function(self.parameters(part), self.weights, *batch)
            return gradients, losses, rest

        return stacked

    def finite(self) -> Tensor:
        """Tell which agents' weights are all finite, (agents,)."""
        weights = [weight for name in self.names for weight in self.parameters(name).values()]
        return torch.stack(
            [torch.isfinite(weight.view(self.count, -1)).all(1) for weight in weights]
        ).all(0)

    def _share(self, name: str, agents: Sequence[Any]) -> dict[str, Tensor]:
        return share_modules([getattr(agent, name) for agent in agents])

    def _modules(self) -> dict[str, nn.Module]:
        return {name: getattr(self.template, name) for name in self.names}


class Stack(StackedModules):
    """Agents that learn one network, whose weights are one vector: the rows of ``matrix``."""

    matrix: Tensor

    def __init__(self, agents: Sequence[Any], frozen: Sequence[str] = ()) -> None:
        super().__init__(agents, ["network", *frozen])
        self._layout = _layout(self.parameters("network"), self.matrix.shape[1])

    def gradient(self, name: str) -> Callable[..., tuple[Tensor, Tensor, Any]]:
        """Return a function of stacked batches: gradients (agents, weights), losses and the rest.

        The agents' method returns the loss first, and one more value.
        """
        gradients = self.gradients(name, "network")

        def stacked(*batch: Tensor) -> tuple[Tensor, Tensor, Any]:
            by_name, losses, metrics = gradients(*batch)
            return self._flattened(by_name), losses, metrics

        return stacked

    def by_name(self, rows: Tensor) -> dict[str, Tensor]:
        """Return parts of a matrix like the weights' by parameter, each (agents, ...)."""
        size = rows.shape[1]
        return {
            name: rows.as_strided(
                weight.shape, (size, *weight.stride()[1:]), weight.storage_offset()
            )
            for name, weight in self.parameters("network").items()
        }

    def finite(self) -> Tensor:
        """Tell which agents' weights are all finite, (agents,)."""
        return torch.isfinite(self.matrix).all(1)

    def _share(self, name: str, agents: Sequence[Any]) -> dict[str, Tensor]:
        if name != "network":
            return super()._share(name, agents)
        self.matrix, learned = _share_weights(agents)
        buffers = share_tensors([dict(agent.network.named_buffers()) for agent in agents])
        return {**learned, **buffers}

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
        value = operator.attrgetter(self.name)(self.owner)(*inputs)
        return () if value is None else value


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


def share_modules(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Move parameters and buffers of modules of one shape into stacked tensors, and return these.

    The modules' own tensors become rows of them.
    """
    return share_tensors(
        [{**dict(m.named_parameters()), **dict(m.named_buffers())} for m in modules]
    )


@torch.no_grad()
def share_tensors(owned: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Do the same with tensors by name."""
    stacked = {}
    for name in owned[0]:
        tensors = [tensors[name] for tensors in owned]
        stacked[name] = _rows(tensors)
        for tensor, row in zip(tensors, stacked[name], strict=True):
            tensor.data = row
    return stacked


def _template(agent: Any, names: Sequence[str]) -> Any:
    """Return an agent with copies of these modules, also where it refers to their parts."""
    template = copy.copy(agent)
    copies: dict[int, nn.Module] = {}
    for name in names:
        module = getattr(agent, name)
        duplicate = _stackable(copy.deepcopy(module))
        pairs = zip(module.modules(), duplicate.modules(), strict=True)
        copies |= {id(original): copied for original, copied in pairs}
    for name, value in vars(agent).items():
        if id(value) in copies:
            setattr(template, name, copies[id(value)])
    return template
