"""The hidden layers of a network as remedies see them: their neurons, and who reads these.

A network of `hadamard.nets` says so itself; the layers of another are recognized from an example.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from hadamard.layers.norm import BranchNorm
from hadamard.modules import AFFINE
from hadamard.nets.hidden import Hidden

NORMS = (BranchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Norms that make a layer's output independent of the scale of its weights."""
RECOGNIZED = "_hadamard_hidden_layers"
"""The attribute with a network's recognized layers, or with why they could not be recognized."""


@dataclass(eq=False)
class HiddenLayer:
    """One hidden layer: what computes its neurons, and what reads them."""

    name: str
    output: nn.Module
    """The module whose output is the representation, after a product of branches."""
    outputs: int
    """Features (channels) of the representation."""
    parts: list[nn.Module]
    """The modules whose parameters' rows are neurons: affine maps and norms."""
    readers: list[nn.Module] = field(default_factory=list)
    """The next affine maps, which hold the neurons' outgoing weights."""
    fresh_values: Callable[[], list[dict[str, Tensor]]] = list
    """Return new random values of the parameters of each part, by name."""
    channels_last: bool = False
    """Whether feature maps are flattened position by position before a linear reader."""
    branches: int = 1
    """How many branches of a product each part computes: its rows are theirs, one after another."""
    normalized: bool = False
    """Whether a norm follows the affine maps, before anything else."""
    routes: list[list[nn.Module]] = field(default_factory=list)
    """For each module that reads the layer, the modules that run one after another, from the first
    one of the layer to that one."""

    @property
    def affines(self) -> list[nn.Module]:
        """The affine maps among the parts."""
        return [part for part in self.parts if isinstance(part, AFFINE)]

    @property
    def count(self) -> int:
        """The number of neurons.

        A neuron of a product has a row in every branch; one of a concatenated activation has
        several outputs.
        """
        return self.affines[0].get_parameter("weight").shape[0] // self.branches

    @property
    def is_trained(self) -> bool:
        """Whether no weight of the layer, nor of what reads it, is frozen."""
        modules = [*self.parts, *self.readers]
        return all(p.requires_grad for m in modules for p in m.parameters(recurse=False))


def hidden_layers(network: nn.Module) -> list[HiddenLayer]:
    """Return a network's hidden layers, except frozen ones; an error if they are not known.

    A layer that frozen weights read counts as frozen: its neurons cannot be replaced unnoticed.
    """
    layers: list[HiddenLayer] | ValueError | None = getattr(network, RECOGNIZED, None)
    if isinstance(layers, ValueError):
        raise ValueError(str(layers))
    if layers is None:
        layers = [_of_hidden(n, m) for n, m in network.named_modules() if isinstance(m, Hidden)]
    if not layers:
        raise ValueError(
            f"the hidden layers of {type(network).__name__} are not known: pass an example of its "
            "input (plasticity.attach(network, optimizer, ..., example=x))"
        )
    trained = [layer for layer in layers if layer.is_trained]
    if not trained:
        raise ValueError(
            f"{type(network).__name__} has no hidden layer that is trained: each one, or what "
            "reads it, is frozen"
        )
    return trained


def _of_hidden(name: str, hidden: Hidden) -> HiddenLayer:
    parts = {n: m for n, m in hidden.layer.named_modules() if has_rows(m)}

    def fresh_values() -> list[dict[str, Tensor]]:
        fresh = dict(hidden.draw().named_modules())
        return [_values(fresh[part]) for part in parts]

    branches = max(1, hidden.affine.get_parameter("weight").shape[0] // hidden.outputs)
    return HiddenLayer(
        name,
        hidden,
        hidden.outputs,
        list(parts.values()),
        hidden.readers,
        fresh_values,
        channels_last=True,
        branches=branches,
        normalized=any(isinstance(m, NORMS) for m in hidden.layer.modules()),
        routes=[[hidden.layer, reader] for reader in hidden.readers],
    )


def _values(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in module.named_parameters(recurse=False)}


def has_rows(module: nn.Module) -> bool:
    """Tell whether the rows of a module's own parameters are neurons."""
    if getattr(module, "shared_by_neurons", False):
        return False
    return any(True for _ in module.parameters(recurse=False))


def fresh_parameters(network: nn.Module) -> dict[str, Tensor]:
    """Return new random values of all parameters that can be drawn anew, by name.

    They are those of modules with a method ``fresh_parameters`` or ``reset_parameters``. Frozen
    parameters are left out.
    """
    values: dict[str, Tensor] = {}
    done: list[str] = []
    for name, module in network.named_modules():
        prefix = f"{name}." if name else ""
        if any(name.startswith(before) for before in done):
            continue
        if hasattr(module, "fresh_parameters"):
            own = module.fresh_parameters()
            done.append(prefix)
        else:
            check_weight(name, module)
            own = reset_copy(module)
        values |= {f"{prefix}{key}": value for key, value in own.items()}
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    return {name: value for name, value in values.items() if name in trained}


def check_weight(name: str, module: nn.Module) -> None:
    """Refuse an affine map whose weight is no parameter of its own; frozen copies have a buffer."""
    if isinstance(module, AFFINE) and not {"weight"} & {*module._parameters, *module._buffers}:
        raise ValueError(
            f"the weight of {name} is computed from other parameters (spectral_norm, weight_norm), "
            "so it cannot be drawn anew: use a layer without"
        )


def reset_copy(module: nn.Module) -> dict[str, Tensor]:
    """Return what a module's own parameters are after ``reset_parameters``, of a copy."""
    reset = getattr(module, "reset_parameters", None)
    if reset is None or not any(True for _ in module.parameters(recurse=False)):
        return {}
    duplicate: Any = copy.deepcopy(module).cpu()
    duplicate.reset_parameters()
    return _values(duplicate)
