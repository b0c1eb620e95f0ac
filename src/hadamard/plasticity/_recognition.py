"""The hidden layers of a network that is not this package's: from one run on an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hadamard.modules import AFFINE
from hadamard.plasticity._layers import (
    NORMS,
    RECOGNIZED,
    HiddenLayer,
    check_weight,
    has_rows,
    reset_copy,
)

_HARMLESS = (nn.Identity, nn.Dropout)
"""Modules that may follow a flattening: what they return is the same representation."""


@torch.no_grad()
def recognize_layers(network: nn.Module, example: Any) -> list[HiddenLayer]:
    """Run a network on an example, and remember its hidden layers for `hidden_layers`.

    A layer is an affine map, or several that are multiplied, with all modules up to the next affine
    map. Only modules are seen: a function between them, such as ``torch.relu``, hides who reads a
    layer, which is an error.
    """
    layers: list[HiddenLayer] = []
    sources: dict[int, _Source] = {}
    """Where a tensor comes from, by the tensor's id."""
    for name, module, inputs, output in _calls(network, example):
        source = sources.get(id(inputs))
        if _computes_a_layer(module):
            if source is not None:
                source.layer.readers.extend(_affines(module))
                source.layer.routes.append([*source.modules, module])
            elif layers and inputs is not example:
                raise ValueError(
                    f"the input of {name} comes from no module's output, so it is not known which "
                    "neurons it reads: use modules (nn.ReLU, nn.Flatten) instead of functions"
                )
            _check_affine(name, module, output, layers)
            layers.append(_layer_of(name, module, output))
            sources[id(output)] = _Source(layers[-1], [module])
        elif source is not None:
            _add_module(source, name, module, inputs, output)
            sources[id(output)] = _Source(source.layer, [*source.modules, module])
    hidden = [layer for layer in layers if layer.readers]
    if not hidden:
        raise ValueError(
            f"{type(network).__name__} has no hidden layer: no affine map reads what another one "
            "computes"
        )
    setattr(network, RECOGNIZED, hidden)
    return hidden


class _Source(NamedTuple):
    """What computed a tensor."""

    layer: HiddenLayer
    modules: list[nn.Module]
    """The modules that ran one after another, from the layer's own on."""


def _check_affine(
    name: str, module: nn.Module, output: Tensor, layers: Sequence[HiddenLayer]
) -> None:
    """Refuse an affine map whose weight has no row for each neuron, or no column for each input."""
    if any(affine in layer.parts for layer in layers for affine in _affines(module)):
        raise ValueError(f"{name} is used twice, so its neurons belong to two layers at once")
    for affine in _affines(module):
        check_weight(name, affine)
        if getattr(affine, "groups", 1) > 1:
            raise ValueError(
                f"{name} is a convolution in groups, whose channels are not read by all of the "
                "next: remedies that act on neurons do not know these"
            )
        if output.dim() != affine.get_parameter("weight").dim():
            raise ValueError(
                f"{name} has an output of shape {tuple(output.shape)}: remedies that act on "
                "neurons need a batch dimension, and know no sequences"
            )


def _layer_of(name: str, module: nn.Module, output: Tensor) -> HiddenLayer:
    layer = HiddenLayer(name, module, output.shape[1], [m for m in module.modules() if has_rows(m)])
    layer.branches = getattr(module, "branch_count", 1)
    layer.fresh_values = partial(_fresh_values, layer.parts)
    layer.normalized = any(isinstance(m, NORMS) for m in module.modules())
    return layer


def _add_module(
    source: _Source, name: str, module: nn.Module, inputs: Tensor, output: Tensor
) -> None:
    """Take what a module does between a layer's affine maps and its readers into account."""
    layer = source.layer
    if output.shape != inputs.shape:
        pooled = output.dim() == inputs.dim() and output.shape[:2] == inputs.shape[:2]
        flattened = output.shape == inputs.flatten(1).shape
        if not (pooled or flattened) or has_rows(module):
            raise ValueError(
                f"{name} ({type(module).__name__}) makes {tuple(output.shape)} of "
                f"{tuple(inputs.shape)}, so it is not known which neurons of {layer.name} its "
                "outputs are"
            )
        return
    if layer.readers:
        return
    if inputs.shape[1] != layer.outputs:
        if not isinstance(module, _HARMLESS):
            raise ValueError(
                f"{name} ({type(module).__name__}) acts on feature maps that are flattened "
                "already: put it before the flattening"
            )
        return
    if isinstance(module, NORMS) and len(source.modules) == 1:
        layer.normalized = True
    if has_rows(module) and not _is_shared(module, inputs):
        own = list(module.parameters(recurse=False))
        has_rows_only = isinstance(module, NORMS) or all(p.dim() == 1 for p in own)
        if not has_rows_only or any(len(p) != layer.outputs for p in own):
            raise ValueError(
                f"the parameters of {name} ({type(module).__name__}) do not belong to single "
                f"neurons of {layer.name}"
            )
        layer.parts.append(module)
        layer.fresh_values = partial(_fresh_values, layer.parts)
    layer.output = module


def _is_shared(module: nn.Module, inputs: Tensor) -> bool:
    """Tell whether all neurons share a module's parameters."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return len(module.normalized_shape) < inputs.dim() - 1  # over rows of images
    return all(p.numel() == 1 for p in module.parameters(recurse=False))


def _fresh_values(parts: list[nn.Module]) -> list[dict[str, Tensor]]:
    return [reset_copy(part) for part in parts]


def _computes_a_layer(module: nn.Module) -> bool:
    """Tell whether a module is an affine map, or one of this package's layers with several."""
    return isinstance(module, AFFINE) or (
        hasattr(module, "dormancy_kind") and _affines(module) != []
    )


def _affines(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.modules() if isinstance(m, AFFINE) and "weight" not in m._buffers]


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
