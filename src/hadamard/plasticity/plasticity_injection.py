"""Plasticity injection: at one point new last layers take over, without a change of predictions.

The last hidden layer and the output layer form a head h. At the injection its weights w are frozen,
new weights v are drawn, and from then on the network computes h_w(x) + h_v'(x) - h_v(x): v' starts
as v and is trained, v stays as it is. So the predictions are the same at first, and what is trained
is as new.

Nikishin et al., "Deep Reinforcement Learning with Plasticity Injection", NeurIPS 2023. No code of
the authors is known; RLE-Foundation/Plasticine injects half-way through training, and the output
layer alone. Ours: the default, near the middle of a run of 100,000 updates; and that the two frozen
heads are there from the start, with equal weights, so that they cancel and nothing moves in memory;
this costs their computation before the injection, too.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.compute.flat import moments
from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.nets.hidden import Hidden
from hadamard.plasticity._layers import drawn_anew

_PURPOSE = 35
"""Of the random numbers, see ``child_seed``."""


@dataclass(frozen=True)
class Config:
    """The settings of plasticity injection."""

    after: int = 40_000
    """Gradient updates before the injection."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.positive(self, "after", section="plasticity-injection")


class _Frozen(nn.Module):
    """The last hidden layer and an output layer with weights that are not trained."""

    measured = False
    """The diagnosis leaves out what is inside."""

    def __init__(self, hidden: Hidden, head: nn.Module) -> None:
        super().__init__()
        self.hidden, self.head = copy.deepcopy(hidden.layer), copy.deepcopy(head)
        for module in self.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, parameter.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return the head's output."""
        output: Tensor = self.head(self.hidden(x))
        return output


class Injected(nn.Module):
    """The frozen heads of one output layer, whose difference is added to its output."""

    def __init__(self, hidden: Hidden, head: nn.Module) -> None:
        super().__init__()
        self.old, self.new = _Frozen(hidden, head), _Frozen(hidden, head)
        self.input: Tensor | None = None
        hidden.register_forward_pre_hook(self.remember)
        head.register_forward_hook(self.corrected)

    def remember(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Keep the head's input until its output is there."""
        self.input = inputs[0]

    def corrected(self, _: nn.Module, __: object, output: Tensor) -> Tensor:
        """Return the output with what the frozen heads add to it."""
        x, self.input = self.input, None
        if x is None:  # the output layer is used by itself
            return output
        correction: Tensor = self.old(x) - self.new(x)
        return output + correction


def prepare(network: nn.Module) -> None:
    """Add the frozen heads, which cancel until the injection."""
    for name, (hidden, head) in _heads(network).items():
        network.add_module(_place(name), Injected(hidden, head))


def _place(head: str) -> str:
    """Return the name of an output layer's frozen heads in the network."""
    return f"injected_{head.replace('.', '_')}"


def _heads(network: nn.Module) -> dict[str, tuple[Hidden, nn.Module]]:
    """Return each output layer by name, with the hidden layer that it reads."""
    names = {id(module): name for name, module in network.named_modules()}
    hidden = [m for m in network.modules() if isinstance(m, Hidden)]
    inner = {id(part) for layer in hidden for part in layer.modules()}
    heads = {
        names[id(reader)]: (layer, reader)
        for layer in hidden
        for reader in layer.readers
        if id(reader) not in inner and id(reader) in names
    }
    if not heads:
        raise ValueError(
            f"plasticity_injection needs a network of hadamard.nets, whose last hidden layer is "
            f"known, and {type(network).__name__} is none: build its last layers from "
            "hadamard.nets.hidden"
        )
    return heads


class PlasticityInjection:
    """Injects once."""

    def __init__(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
    ) -> None:
        self.network, self.optimizer, self.config, self.seed = network, optimizer, config, seed

    @torch.no_grad()
    def __call__(self, updates: int, obs: Tensor) -> None:
        """Inject if it is time."""
        del obs
        if updates != self.config.after:
            return
        names = {id(module): name for name, module in self.network.named_modules()}
        with seeded(child_seed(self.seed, _PURPOSE)):
            fresh = drawn_anew(self.network)
        replaced: dict[str, nn.Parameter] = {}
        for name, (hidden, head) in _heads(self.network).items():
            injected = self.network.get_submodule(_place(name))
            assert isinstance(injected, Injected)
            for part, module in (("hidden", hidden.layer), ("head", head)):
                old = dict(injected.old.get_submodule(part).named_buffers())
                new = dict(injected.new.get_submodule(part).named_buffers())
                for key, parameter in module.named_parameters():
                    place = f"{names[id(module)]}.{key}"
                    old[key].copy_(parameter)
                    new[key].copy_(fresh[place])
                    replaced[place] = parameter
        # Heads may share their hidden layer, so it is replaced after all are frozen.
        for place, parameter in replaced.items():
            parameter.copy_(fresh[place])
            for moment in moments(self.optimizer, parameter):
                moment.zero_()


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, config: Config, seed: int
) -> PlasticityInjection:
    """Return plasticity injection for a network and its optimizer."""
    return PlasticityInjection(network, optimizer, config, seed)
