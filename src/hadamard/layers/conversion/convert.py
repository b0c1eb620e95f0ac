"""Turn hidden layers of an existing network into Hadamard layers, in place.

The network is changed only after all layers are chosen, checked and built, so a conversion that
fails leaves it as it was.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.layers.activations import ActivationLike, activation_name, make_activation
from hadamard.layers.branch import Branch, check_branch_count
from hadamard.layers.conversion.replacements import build_replacements
from hadamard.layers.conversion.selection import Where, choose_layers
from hadamard.layers.conversion.tracing import TracedLayer
from hadamard.layers.fused import FusedHadamard
from hadamard.layers.start import Start, check_start
from hadamard.modules import refuse_torchscript, refuse_wrapped
from hadamard.text import counted


@dataclass(frozen=True)
class Change:
    """One converted layer, described before and after."""

    name: str
    before: str
    after: str
    parameters_before: int
    parameters_after: int


@dataclass(frozen=True)
class Conversion:
    """What ``hadamardize`` changed; printing it shows a table."""

    changed: tuple[Change, ...]
    #: Layers left as they were, each with the reason.
    skipped: Mapping[str, str]
    parameters_before: int
    parameters_after: int
    optimizers_updated: int

    def __str__(self) -> str:
        rows = [("layer", "before", "after", "parameters")]
        for change in self.changed:
            count = f"{change.parameters_before:,} -> {change.parameters_after:,}"
            rows.append((change.name, change.before, change.after, count))
        growth = self.parameters_after / self.parameters_before - 1
        total = f"{self.parameters_before:,} -> {self.parameters_after:,} ({growth:+.1%})"
        rows.append(("whole network", "", "", total))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [f"left as it was: {name}: {reason}" for name, reason in self.skipped.items()]
        if self.optimizers_updated:
            lines.append(f"{counted(self.optimizers_updated, 'optimizer')} updated")
        else:
            lines.append(
                "No optimizer was updated: build it after converting, or pass it as optimizers=."
            )
        return "\n".join(lines)


def hadamardize(
    model: nn.Module,
    where: Where | None = None,
    activation: ActivationLike | None = None,
    branches: int = 2,
    init: Callable[[nn.Module], Any] | None = None,
    optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] = (),
    *,
    start: Start | None = None,
) -> Conversion:
    """Turn hidden layers of a network into Hadamard layers, in place.

    A hidden layer is a linear or convolutional layer whose output goes through an optional norm
    into an activation module. The Hadamard layer replaces it and contains norm and activation.
    These are replaced by ``nn.Identity``, so names and indices stay valid. A ReLU called as a
    function (``F.relu``) may stay in place if the branches' activation is ReLU too. The first
    branch keeps the layer's weights; the others are initialized as the layer was (orthogonal
    weights with the same gain, zero biases as zeros), and then shifted so that their outputs
    start around one: the network starts close to what it computed. ``start`` chooses another
    start. Layers with identical weights, such as a network and its target copy, get identical
    branches, so convert before training.

    Args:
        model: the network. Its ``forward`` methods are traced to find what follows each layer. A
            layer whose use cannot be traced is skipped, or an error if ``where`` names it.
        where: a name (``"critic.0"``), a pattern (``"critic.*"``), several of them, or a
            predicate ``(name, module) -> bool``; None converts every hidden layer. An output
            followed by an activation (a tanh policy) looks like a hidden layer: exclude it here.
        activation: the branches' activation; None keeps the network's.
        branches: number of factors in the product.
        init: initializes a new affine module in place, e.g. CleanRL's ``layer_init``.
        optimizers: optimizers that hold the network's parameters. Those that a module has as an
            attribute (as in Stable-Baselines3) are updated without being named.
        start: ``"near_one"``, as above; ``"scaled"`` multiplies all weights, also the first
            branch's, so that the product's variance is the layer's; ``"paper"`` draws all branches
            alike, which makes the signal weaker. None is ``"near_one"``, or ``"scaled"`` for a
            layer without a bias. See ``hadamard.layers.start``.

    Raises:
        ValueError: if a chosen layer cannot be converted or no layer was chosen; the network, the
            optimizers and the random state are then unchanged.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
        >>> hadamardize(net).changed[0].after
        'HadamardLinear(4, 64, relu, 2 branches)'
        >>> net(torch.zeros(1, 4)).shape
        torch.Size([1, 2])
    """
    if start is not None:
        check_start(start)
    all_optimizers = _check_arguments(model, branches, init, optimizers)
    new_activation = None if activation is None else make_activation(activation)
    keeps_relu = new_activation is None or activation_name(new_activation) == "relu"
    chosen, skipped = choose_layers(model, where, keeps_relu)

    products = build_replacements(chosen, new_activation, branches, init, start)
    changed = tuple(map(_describe, chosen, products))
    before = _count(model)
    swaps: dict[nn.Module, nn.Module] = {}
    successors: dict[Tensor, list[nn.Parameter]] = defaultdict(list)
    for layer, product in zip(chosen, products, strict=True):
        swaps |= {part: nn.Identity().train(part.training) for part in layer.parts}
        swaps[layer.affine] = product
        for old, new in _successors(layer, product).items():
            successors[old] += new

    _swap(model, swaps)
    updated = sum([_update(optimizer, model, successors) for optimizer in all_optimizers])
    return Conversion(changed, skipped, before, _count(model), updated)


def _check_arguments(
    model: object, branches: int, init: object, optimizers: object
) -> list[torch.optim.Optimizer]:
    """Check the arguments; return the optimizers, those in modules' attributes included."""
    if not isinstance(model, nn.Module):
        hint = "; pass its .policy" if isinstance(getattr(model, "policy", None), nn.Module) else ""
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}{hint}")
    refuse_torchscript(model, "convert")
    refuse_wrapped(model, "convert")
    check_branch_count(branches)
    if init is not None and not callable(init):
        raise TypeError(f"init must be callable on a new module, got {type(init).__name__}")
    all_optimizers: list[Any] = (
        list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]
    )
    for optimizer in all_optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizers must be torch optimizers, got {type(optimizer).__name__}")
    for module in model.modules():
        all_optimizers += [v for v in vars(module).values() if isinstance(v, torch.optim.Optimizer)]
    return all_optimizers


def _describe(layer: TracedLayer, product: nn.Module) -> Change:
    affine = layer.affine
    if isinstance(affine, nn.Linear):
        shape = f"{affine.in_features}, {affine.out_features}"
    else:
        kernel = "x".join(map(str, affine.kernel_size))
        shape = f"{affine.in_channels}, {affine.out_channels}, {kernel}"
    before = [f"{type(affine).__name__}({shape})", *(type(p).__name__ for p in layer.parts[1:])]
    if isinstance(product, FusedHadamard):
        settings = f"{activation_name(product.activation)}, {product.branch_count} branches"
        norm = "" if product.norm is None else "layer norm, "
        after = f"{type(product).__name__}({shape}, {norm}{settings})"
    else:
        branches: Any = product.branches
        activation = type(branches[0].activation).__name__
        after = f"Hadamard({' + '.join([*before[:-1], activation])}, {len(branches)} branches)"
    old = sum(map(_count, layer.parts))
    return Change(layer.name, " + ".join(before), after, old, _count(product))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _successors(layer: TracedLayer, product: nn.Module) -> dict[Tensor, list[nn.Parameter]]:
    """Map each old parameter to those that replace it in an optimizer's groups."""
    assert layer.activation is not None
    old = dict(Branch(layer.affine, layer.norm, layer.activation).named_parameters())
    new: dict[Tensor, list[nn.Parameter]] = {parameter: [] for parameter in old.values()}
    for name, parameter in product.named_parameters():
        role = re.sub(r"^branches\.\d+\.", "", name)
        # A new activation may have parameters that the old one did not have.
        new[old.get(role, old["affine.weight"])].append(parameter)
    return new


def _swap(model: nn.Module, swaps: Mapping[nn.Module, nn.Module]) -> None:
    """Replace modules wherever they are registered."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in swaps:
                parent.register_module(name, swaps[child])


def _update(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    successors: Mapping[Tensor, list[nn.Parameter]],
) -> bool:
    """Replace old parameters in an optimizer; return whether it had any of them."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    changed = False
    for group in optimizer.param_groups:
        old = list(group["params"])
        changed = changed or any(parameter in successors for parameter in old)
        new = list(dict.fromkeys(n for p in old for n in successors.get(p, [p])))
        if "param_names" in group:
            names |= dict(zip(old, group["param_names"], strict=True))
            group["param_names"] = [names[parameter] for parameter in new]
        group["params"][:] = new
    for parameter in successors:
        optimizer.state.pop(parameter, None)
    return changed
