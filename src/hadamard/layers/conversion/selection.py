"""Which layers of a traced network to convert."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping

from torch import nn

from hadamard.layers.conversion.tracing import TracedLayer, TracedNetwork
from hadamard.modules import AFFINE
from hadamard.text import did_you_mean

Where = str | Iterable[str] | Callable[[str, nn.Module], bool]


def choose_layers(
    model: nn.Module, where: Where | None, keeps_relu: bool
) -> tuple[list[TracedLayer], dict[str, str]]:
    """Return the layers to convert, and the names of skipped layers with the reasons."""
    if isinstance(model, AFFINE):
        raise ValueError(
            f"the model is a bare {type(model).__name__}, with no activation to multiply: use "
            "nn.Sequential(layer, nn.ReLU()), or use HadamardLinear or HadamardConv2d"
        )
    network = TracedNetwork(model, keeps_relu)
    if where is None:
        skipped = {layer.name: layer.problem for layer in network.layers if layer.problem}
        chosen = [layer for layer in network.layers if not layer.problem]
        while shared := network.shared(chosen):
            skipped |= shared
            chosen = [layer for layer in chosen if layer.name not in shared]
        if not chosen:
            reason = "the network has no linear or convolutional layer outside Hadamard layers"
            raise ValueError(
                _error_message("no hidden layer can be converted:", skipped or {"": reason})
            )
        return chosen, skipped
    matches, exact = _matches(network, where)
    skipped = {
        layer.name: layer.problem
        for layer in matches
        if layer.is_output and layer.name not in exact
    }
    chosen = [layer for layer in matches if layer.name not in skipped]
    problems = {layer.name: layer.problem for layer in chosen if layer.problem}
    if problems := problems or network.shared(chosen):
        raise ValueError(_error_message("cannot convert:", problems) + _hidden_layers_hint(network))
    if not chosen:
        raise ValueError("where matches no hidden layer." + _hidden_layers_hint(network))
    return chosen, skipped


def _matches(network: TracedNetwork, where: Where) -> tuple[list[TracedLayer], set[str]]:
    """Return the layers that ``where`` matches, and which names it gives without wildcards."""
    if callable(where) and not isinstance(where, (type, nn.Module)):
        return [layer for layer in network.layers if where(layer.name, layer.affine)], set()
    patterns = [where] if isinstance(where, str) else where
    if not isinstance(patterns, Iterable) or isinstance(where, nn.Module):
        raise TypeError(
            "where must be a name, a pattern, several of them, or a predicate, got "
            f"{type(where).__name__}"
        )
    names: set[str] = set()
    exact: set[str] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"where must hold names or patterns, got {type(pattern).__name__}")
        matching = {
            layer.name
            for layer in network.layers
            if any(fnmatch.fnmatchcase(alias, pattern) for alias in layer.aliases)
        }
        if not matching:
            raise ValueError(_unmatched_message(network, pattern) + _hidden_layers_hint(network))
        names |= matching
        if not set("*?[") & set(pattern):
            exact |= matching
    return [layer for layer in network.layers if layer.name in names], exact


def _unmatched_message(network: TracedNetwork, pattern: str) -> str:
    message = f"where={pattern!r} matches no linear or convolutional layer"
    modules = {name: module for module, names in network.names.items() for name in names}
    if pattern in modules:
        message += f" but a {type(modules[pattern]).__name__}"
    aliases = [alias for layer in network.layers for alias in layer.aliases]
    if any(alias.startswith(f"{pattern}.") for alias in aliases):
        return f"{message}; did you mean {f'{pattern}.*'!r}?"
    return message + (did_you_mean(pattern, aliases, count=1) or ".")


def _hidden_layers_hint(network: TracedNetwork) -> str:
    hidden = [layer.name for layer in network.layers if not layer.problem]
    return f" Hidden layers of this network: {', '.join(hidden) or 'none'}."


def _error_message(title: str, reasons: Mapping[str, str]) -> str:
    lines = (f"  {name}: {reason}" if name else f"  {reason}" for name, reason in reasons.items())
    return "\n".join([title, *lines]) + "\n"
