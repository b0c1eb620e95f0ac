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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.compute.flat import moments
from hadamard.core import require
from hadamard.core.random import child_seed, seeded
from hadamard.plasticity._layers import fresh_parameters, hidden_layers

_PURPOSE = 35
"""Of the random numbers, see ``child_seed``."""
_NAME = "injected"
"""Of the frozen copies, as a module of the output layer."""


@dataclass(frozen=True)
class Config:
    """The settings of plasticity injection."""

    after: int = 40_000
    """Gradient updates before the injection."""

    def check(self) -> None:
        """Refuse settings out of range."""
        require.positive(self, "after", section="plasticity-injection")


class _Frozen(nn.Sequential):
    """A copy of a head whose weights are not trained."""

    measured = False
    """The diagnosis leaves out what is inside."""

    def __init__(self, head: Sequence[nn.Module]) -> None:
        super().__init__(*copy.deepcopy(list(head)))
        for module in self.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, parameter.detach().clone())

    def train(self, mode: bool = True) -> _Frozen:
        """Keep the copy deterministic: dropout in it would keep two copies from canceling."""
        del mode
        return super().train(False)


class Injected(nn.Module):
    """Two frozen copies of a head, whose difference is added to its output."""

    def __init__(self, head: Sequence[nn.Module]) -> None:
        super().__init__()
        self.old, self.new = _Frozen(head).train(), _Frozen(head).train()
        self.input: Tensor | None = None

    def join(self, head: Sequence[nn.Module]) -> None:
        """Be computed with the head from now on, as a part of its output layer."""
        head[0].register_forward_pre_hook(self.remember)
        head[-1].register_forward_hook(self.corrected)
        head[-1].add_module(_NAME, self)

    def remember(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Keep the head's input until its output is there."""
        self.input = inputs[0]

    def corrected(self, _: nn.Module, __: object, output: Tensor) -> Tensor:
        """Return the output with what the frozen copies add to it."""
        x, self.input = self.input, None
        if x is None:  # the output layer is used by itself
            return output
        correction: Tensor = self.old(x) - self.new(x)
        return output + correction


def prepare(network: nn.Module) -> None:
    """Add the frozen copies of each head, which cancel until the injection."""
    heads = _heads(network)
    for head in heads:
        if stateful := [m for part in head for m in part.modules() if list(m.buffers(False))]:
            raise ValueError(
                f"plasticity_injection cannot freeze a {type(stateful[0]).__name__}, which changes "
                "without a gradient: use nn.LayerNorm in the last hidden layer"
            )
    # All are copied before the first is joined: heads may share their hidden layer.
    for injected, head in [(Injected(head), head) for head in heads]:
        injected.join(head)


def _heads(network: nn.Module) -> list[list[nn.Module]]:
    """Return each output layer with the modules of the hidden layer before it, in their order."""
    layers = hidden_layers(network)
    inner = {id(part) for layer in layers for part in layer.parts}
    return [
        route
        for layer in layers
        for route in layer.routes
        if not any(id(module) in inner for module in route[-1].modules())
    ]


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
            fresh = fresh_parameters(self.network)
        replaced: dict[str, nn.Parameter] = {}
        for head in _heads(self.network):
            injected = head[-1].get_submodule(_NAME)
            assert isinstance(injected, Injected)
            for module, *frozen in zip(head, injected.old, injected.new, strict=True):
                old, new = (dict(copied.named_buffers()) for copied in frozen)
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
