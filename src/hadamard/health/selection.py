"""Which modules of a network are measured, and by which rule."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torch import nn

from hadamard.health.dormant import Kind
from hadamard.health.outputs import RECURRENT
from hadamard.modules import NOT_HIDDEN
from hadamard.text import did_you_mean

M = TypeVar("M", bound=nn.Module)
LayerChoice = str | Sequence[str] | Callable[[str, nn.Module], bool]

_MARK = "_hadamard_representation"
_ZERO_FOR_NEGATIVE_INPUTS = (nn.ReLU, nn.ReLU6, nn.Threshold)


def mark(module: M, kind: Kind = "auto") -> M:
    """Mark a module's output as a hidden representation.

    In a network with marked modules, the diagnosis measures only these. ``kind`` is the rule for
    dormant neurons, as in ``dormant``.

    Examples:
        >>> encoder = mark(nn.Sequential(nn.Linear(4, 8), nn.Tanh()), kind="tanh")
    """
    if kind not in ("relu", "tanh", "auto"):
        raise ValueError(f"kind must be 'relu', 'tanh' or 'auto', got {kind!r}")
    setattr(module, _MARK, kind)
    return module


def dormancy_rule(module: nn.Module) -> Kind:
    """Return the rule for dormant neurons of a module's output."""
    kind: Kind | None = getattr(module, _MARK, None) or getattr(module, "dormancy_kind", None)
    if kind is not None:
        return kind
    if isinstance(module, _ZERO_FOR_NEGATIVE_INPUTS):
        return "relu"
    return "tanh" if is_activation(module) or isinstance(module, RECURRENT) else "auto"


def is_activation(module: nn.Module) -> bool:
    """Say whether a module is an activation or ends in one (as a Hadamard layer does)."""
    if hasattr(module, "dormancy_kind"):
        return True
    return type(module).__module__ == nn.ReLU.__module__ and not isinstance(module, NOT_HIDDEN)


def measured_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules by name, without those inside a module whose ``measured`` is False."""
    left_out: list[str] = []
    for name, module in model.named_modules():
        if getattr(module, "measured", True) is False:
            left_out.append(f"{name}.")
        elif not any(name.startswith(outer) for outer in left_out):
            yield name, module


def choose_modules(
    model: nn.Module, layers: LayerChoice | None
) -> tuple[dict[str, nn.Module], dict[str, set[str]], bool]:
    """Return what to measure: modules by name, which of a module's outputs, and functions or not.

    Of a module without an entry in the second, all outputs are measured.
    """
    named = {name: module for name, module in model.named_modules() if name}
    if layers is None:
        marked = {name: m for name, m in model.named_modules() if hasattr(m, _MARK)}
        if marked:
            return marked, {}, False
        activations: dict[str, nn.Module] = {}
        outputs: dict[str, set[str]] = {}
        for name, module in measured_modules(model):
            is_inside = any(name.startswith(f"{outer}.") or outer == "" for outer in activations)
            if (is_activation(module) or isinstance(module, RECURRENT)) and not is_inside:
                activations[name] = module
                if isinstance(module, nn.RNNBase):
                    outputs[name] = {"output"}
        return activations, outputs, True
    if callable(layers):
        chosen = {name: module for name, module in named.items() if layers(name, module)}
        if not chosen:
            raise ValueError(f"the layers predicate chose none of: {', '.join(named)}")
        return chosen, {}, False
    chosen = {}
    parts: dict[str, set[str]] = {}
    for pattern in [layers] if isinstance(layers, str) else layers:
        matches = fnmatch.filter(named, pattern)
        owner, _, part = pattern.rpartition(".")
        if not matches and owner in named:  # an output of a module, such as lstm.cell
            chosen[owner] = named[owner]
            parts.setdefault(owner, set()).add(part)
            continue
        if not matches:
            raise ValueError(
                f"no layer is called {pattern!r}{did_you_mean(pattern, named) or '.'} "
                f"The network has: {', '.join(named) or 'no submodules'}"
            )
        chosen.update({name: named[name] for name in matches})
    return chosen, parts, False
