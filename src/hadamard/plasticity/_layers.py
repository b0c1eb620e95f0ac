"""The hidden layers of a network as remedies see them: their neurons, and who reads these.

A network of `hadamard.nets` says so itself. Another one is run once on an example, and its layers
are recognized by the tensors that pass from module to module.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.modules import AFFINE
from hadamard.nets.hidden import Hidden

_LAYERS = "_hadamard_hidden_layers"
"""The attribute of a network whose layers were recognized."""


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
    drawn: Callable[[], list[dict[str, Tensor]]] = list
    """Return new random values of the parameters of each part, by name."""
    channels_last: bool = False
    """Whether feature maps are flattened position by position before a linear reader."""
    branches: int = 1
    """How many branches of a product each part computes: its rows are theirs, one after another."""

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


def hidden_layers(network: nn.Module) -> list[HiddenLayer]:
    """Return a network's hidden layers; an error if they are not known."""
    own: list[HiddenLayer] | None = getattr(network, _LAYERS, None)
    if own is not None:
        return own
    layers = [_of_hidden(n, m) for n, m in network.named_modules() if isinstance(m, Hidden)]
    if not layers:
        raise ValueError(
            f"the hidden layers of {type(network).__name__} are not known: pass an example of its "
            "input (plasticity.attach(network, optimizer, ..., example=x))"
        )
    return layers


def _of_hidden(name: str, hidden: Hidden) -> HiddenLayer:
    parts = {n: m for n, m in hidden.layer.named_modules() if _has_rows(m)}

    def drawn() -> list[dict[str, Tensor]]:
        fresh = dict(hidden.draw().named_modules())
        return [_values(fresh[part]) for part in parts]

    branches = max(1, hidden.affine.get_parameter("weight").shape[0] // hidden.outputs)
    modules = list(parts.values())
    return HiddenLayer(name, hidden, hidden.outputs, modules, hidden.readers, drawn, True, branches)


def _values(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in module.named_parameters(recurse=False)}


def _has_rows(module: nn.Module) -> bool:
    """Tell whether the rows of a module's own parameters are neurons."""
    if getattr(module, "shared_by_neurons", False):
        return False
    return any(True for _ in module.parameters(recurse=False))


def drawn_anew(network: nn.Module) -> dict[str, Tensor]:
    """Return new random values of all parameters that can be drawn anew, by name.

    They are those of modules with a method ``drawn`` or ``reset_parameters``.
    """
    values: dict[str, Tensor] = {}
    done: list[str] = []
    for name, module in network.named_modules():
        prefix = f"{name}." if name else ""
        if any(name.startswith(before) for before in done):
            continue
        if hasattr(module, "drawn"):
            own = module.drawn()
            done.append(prefix)
        else:
            own = _reset_copy(module)
        values |= {f"{prefix}{key}": value for key, value in own.items()}
    parameters = dict(network.named_parameters())
    return {name: value for name, value in values.items() if name in parameters}


def _reset_copy(module: nn.Module) -> dict[str, Tensor]:
    """Return what a module's own parameters are after ``reset_parameters``, of a copy."""
    reset = getattr(module, "reset_parameters", None)
    if reset is None or not any(True for _ in module.parameters(recurse=False)):
        return {}
    duplicate: Any = copy.deepcopy(module).cpu()
    duplicate.reset_parameters()
    return _values(duplicate)


@torch.no_grad()
def recognize_layers(network: nn.Module, example: Any) -> list[HiddenLayer]:
    """Run a network on an example, and remember its hidden layers for `hidden_layers`.

    A layer is an affine map, or several that are multiplied, with all modules up to the next affine
    map. Only modules are seen: a function between them, such as ``torch.relu``, hides who reads a
    layer, which is an error.
    """
    calls = _calls(network, example)
    layers: list[HiddenLayer] = []
    source: dict[int, HiddenLayer] = {}
    """The layer that a tensor comes from, by the tensor's id."""
    for name, module, inputs, output in calls:
        before = source.get(id(inputs))
        if _computes_a_layer(module):
            if before is not None:
                before.readers.extend(_affines(module))
            elif layers and inputs is not example:
                raise ValueError(
                    f"the input of {name} comes from no module's output, so it is not known which "
                    "neurons it reads: use modules (nn.ReLU, nn.Flatten) instead of functions"
                )
            parts = [m for m in module.modules() if _has_rows(m)]
            layer = HiddenLayer(name, module, output.shape[1], parts)
            layer.branches = getattr(module, "branch_count", 1)
            layer.drawn = _drawing(layer.parts)
            layers.append(layer)
            source[id(output)] = layer
        elif before is not None:
            if output.shape == inputs.shape and not before.readers:
                if _has_rows(module):
                    before.parts.append(module)
                    before.drawn = _drawing(before.parts)
                before.output, before.outputs = module, output.shape[1]
            source[id(output)] = before
    hidden = [layer for layer in layers if layer.readers]
    if not hidden:
        raise ValueError(
            f"{type(network).__name__} has no hidden layer: no affine map reads what another one "
            "computes"
        )
    setattr(network, _LAYERS, hidden)
    return hidden


def _drawing(parts: list[nn.Module]) -> Callable[[], list[dict[str, Tensor]]]:
    return lambda: [_reset_copy(part) for part in parts]


def _computes_a_layer(module: nn.Module) -> bool:
    """Tell whether a module is an affine map, or one of this package's layers with several."""
    return isinstance(module, AFFINE) or (
        hasattr(module, "dormancy_kind") and _affines(module) != []
    )


def _affines(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.modules() if isinstance(m, AFFINE)]


def _calls(network: nn.Module, example: Any) -> list[tuple[str, nn.Module, Tensor, Tensor]]:
    """Return every call of a module that is no container: name, module, input and output."""
    calls: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    whole = [m for m in network.modules() if _computes_a_layer(m)]
    inside = {id(part) for m in whole for part in m.modules() if part is not m}
    handles = []

    def hook(name: str) -> Callable[..., None]:
        def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
                calls.append((name, module, inputs[0], output))

        return record

    for name, module in network.named_modules():
        is_leaf = not any(True for _ in module.children()) or module in whole
        if is_leaf and id(module) not in inside:
            handles.append(module.register_forward_hook(hook(name or type(module).__name__)))
    try:
        network(example)
    finally:
        for handle in handles:
            handle.remove()
    return calls
