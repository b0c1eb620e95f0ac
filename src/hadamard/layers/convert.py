"""Turn hidden layers of an existing network into Hadamard layers, in place.

Everything is planned first: what follows each layer is read from the forward methods (see
``reading``), obstacles are found, new weights are drawn. Only then is the network changed, so a
refused conversion leaves no trace.
"""

from __future__ import annotations

import copy
import difflib
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.layers.activations import ActivationLike, activation_name, make_activation
from hadamard.layers.branch import Branch
from hadamard.layers.hadamard import FusedHadamard, Hadamard, check_branch_count, fuse
from hadamard.layers.norm import BranchNorm
from hadamard.layers.reading import AFFINE, Affine, Layer, Network

Where = str | Iterable[str] | Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class Change:
    """One converted layer: what stood there, what stands there now."""

    name: str
    before: str
    after: str
    parameters_before: int
    parameters_after: int


@dataclass(frozen=True)
class Conversion:
    """What ``hadamardize`` did; print it for a table."""

    changed: tuple[Change, ...]
    #: Layers left as they were, each with the reason.
    skipped: Mapping[str, str]
    parameters_before: int
    parameters_after: int
    optimizers_updated: int

    def __str__(self) -> str:
        rows = [("layer", "before", "after", "parameters")]
        for c in self.changed:
            count = f"{c.parameters_before:,} -> {c.parameters_after:,}"
            rows.append((c.name, c.before, c.after, count))
        growth = self.parameters_after / self.parameters_before - 1
        total = f"{self.parameters_before:,} -> {self.parameters_after:,} ({growth:+.1%})"
        rows.append(("whole network", "", "", total))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [f"left as it was: {name}: {reason}" for name, reason in self.skipped.items()]
        if self.optimizers_updated:
            plural = "s" if self.optimizers_updated > 1 else ""
            lines.append(f"{self.optimizers_updated} optimizer{plural} updated")
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
) -> Conversion:
    """Turn hidden layers of a network into Hadamard layers, in place.

    A hidden layer is a linear or convolutional layer whose output goes through an optional norm
    into an activation module. The Hadamard layer takes its place and contains norm and
    activation; their own places are taken by ``nn.Identity``, so names and indices stay valid.
    A ReLU called as a function (``F.relu``) may stay where it is if the product's is ReLU too.
    The first branch keeps the layer's weights, the others are drawn as the layer's were
    (orthogonal ones with the same gain, zero biases as zeros). Layers that start identical, such
    as a network and its target copy, stay identical: convert before training.

    Args:
        model: the network. Sequential parts are read as chains, other modules by tracing their
            ``forward``; what cannot be read is left as it was, or refused if asked for.
        where: a name (``"critic.0"``), a pattern (``"critic.*"``), several of them, or a
            predicate ``(name, module) -> bool``; None converts every hidden layer there is. An
            output squashed by an activation (a tanh policy) looks like a hidden layer: leave it
            out here.
        activation: replaces the network's own; None keeps it.
        branches: how many factors the product has.
        init: draws the weights of a new affine module in place, e.g. CleanRL's ``layer_init``.
        optimizers: optimizers that hold the network's parameters. Those kept as attributes of a
            module (as Stable-Baselines3 does) are found without being named.

    Raises:
        ValueError: if a chosen layer cannot be converted or nothing was chosen; the network, the
            optimizers and the random state are then as before.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
        >>> hadamardize(net).changed[0].after
        'HadamardLinear(4, 64, relu, 2 branches)'
        >>> net(torch.zeros(1, 4)).shape
        torch.Size([1, 2])
    """
    known = _check_arguments(model, branches, init, optimizers)
    replacement = None if activation is None else make_activation(activation)
    relu_stays = replacement is None or activation_name(replacement) == "relu"
    chosen, skipped = _choose(model, where, relu_stays)

    products = _products(chosen, replacement, branches, init)
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
    updated = sum([_update(optimizer, model, successors) for optimizer in known])
    return Conversion(changed, skipped, before, _count(model), updated)


def _check_arguments(
    model: object, branches: int, init: object, optimizers: object
) -> list[torch.optim.Optimizer]:
    """Refuse wrong arguments; return every optimizer known."""
    if not isinstance(model, nn.Module):
        hint = "; pass its .policy" if isinstance(getattr(model, "policy", None), nn.Module) else ""
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}{hint}")
    check_branch_count(branches)
    if init is not None and not callable(init):
        raise TypeError(f"init must be callable on a new module, got {type(init).__name__}")
    known: list[Any] = list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]
    for optimizer in known:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizers must be torch optimizers, got {type(optimizer).__name__}")
    for module in model.modules():
        known += [v for v in vars(module).values() if isinstance(v, torch.optim.Optimizer)]
    return known


def _choose(
    model: nn.Module, where: Where | None, relu_may_stay: bool
) -> tuple[list[Layer], dict[str, str]]:
    """Settle which layers are converted, and why others of those asked for are not."""
    if isinstance(model, AFFINE):
        raise ValueError(
            f"the model is a bare {type(model).__name__}, with no activation to multiply: wrap both"
            " as nn.Sequential(layer, nn.ReLU()), or use HadamardLinear or HadamardConv2d"
        )
    network = Network(model, relu_may_stay)
    if where is None:
        skipped = {layer.name: layer.problem for layer in network.layers if layer.problem}
        chosen = [layer for layer in network.layers if not layer.problem]
        while shared := network.shared(chosen):
            skipped |= shared
            chosen = [layer for layer in chosen if layer.name not in shared]
        if not chosen:
            none = "there is no linear or convolutional layer outside Hadamard layers"
            raise ValueError(_listing("no hidden layer can be converted:", skipped or {"": none}))
        return chosen, skipped
    picked, exact = _pick(network, where)
    skipped = {
        layer.name: layer.problem for layer in picked if layer.is_output and layer.name not in exact
    }
    chosen = [layer for layer in picked if layer.name not in skipped]
    problems = {layer.name: layer.problem for layer in chosen if layer.problem}
    if problems := problems or network.shared(chosen):
        raise ValueError(_listing("cannot convert:", problems) + _hidden(network))
    if not chosen:
        raise ValueError("where chooses no hidden layer." + _hidden(network))
    return chosen, skipped


def _pick(network: Network, where: Where) -> tuple[list[Layer], set[str]]:
    """Return the layers ``where`` matches, and the names of those it spells out."""
    if callable(where) and not isinstance(where, (type, nn.Module)):
        return [layer for layer in network.layers if where(layer.name, layer.affine)], set()
    patterns = [where] if isinstance(where, str) else where
    if not isinstance(patterns, Iterable) or isinstance(where, nn.Module):
        raise TypeError(
            f"where must be a name, a pattern, several, or a predicate, got {type(where).__name__}"
        )
    matched: set[str] = set()
    exact: set[str] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"where must hold names or patterns, got {type(pattern).__name__}")
        found = {
            layer.name
            for layer in network.layers
            if any(fnmatch.fnmatchcase(alias, pattern) for alias in layer.aliases)
        }
        if not found:
            raise ValueError(_unmatched(network, pattern) + _hidden(network))
        matched |= found
        if not set("*?[") & set(pattern):
            exact |= found
    return [layer for layer in network.layers if layer.name in matched], exact


def _unmatched(network: Network, pattern: str) -> str:
    names = {name: module for module, names in network.names.items() for name in names}
    aliases = [alias for layer in network.layers for alias in layer.aliases]
    near = difflib.get_close_matches(pattern, aliases, n=1)
    if any(alias.startswith(f"{pattern}.") for alias in aliases):
        near = [f"{pattern}.*"]
    message = f"where={pattern!r} matches no linear or convolutional layer"
    if pattern in names:
        message += f" but a {type(names[pattern]).__name__}"
    return message + (f"; did you mean {near[0]!r}?" if near else ".")


def _hidden(network: Network) -> str:
    hidden = [layer.name for layer in network.layers if not layer.problem]
    return f" Hidden layers here: {', '.join(hidden) or 'none'}."


def _listing(title: str, reasons: Mapping[str, str]) -> str:
    lines = (f"  {name}: {reason}" if name else f"  {reason}" for name, reason in reasons.items())
    return "\n".join([title, *lines]) + "\n"


def _products(
    layers: Sequence[Layer],
    activation: nn.Module | None,
    branches: int,
    init: Callable[[nn.Module], Any] | None,
) -> list[nn.Module]:
    """Build the Hadamard layers; the network is not touched."""
    drawn: list[tuple[Branch, list[Branch]]] = []
    products = []
    for layer in layers:
        own = _own_branch(layer, activation)
        fresh = [copy.deepcopy(own) for _ in range(branches - 1)]
        twin = next((others for other, others in drawn if _identical(own, other)), None)
        for i, branch in enumerate(fresh):
            if twin is None:
                _redraw(branch, init)
            else:
                branch.load_state_dict(twin[i].state_dict())
        drawn.append((own, fresh))
        product = fuse([own, *fresh])
        for module in product.modules():
            # Not train(): a norm may have been frozen on its own.
            if isinstance(module, (Hadamard, FusedHadamard, Branch, nn.ModuleList)):
                module.training = layer.affine.training
        products.append(product)
    return products


def _own_branch(layer: Layer, activation: nn.Module | None) -> Branch:
    """Make the branch that computes what the layer does now."""
    affine = copy.deepcopy(layer.affine)
    f = copy.deepcopy(layer.activation if activation is None else activation)
    assert f is not None
    if activation is not None:
        f = f.to(affine.weight).train(affine.training)
    if getattr(f, "inplace", False):
        f.inplace = False  # type: ignore[assignment]
    return Branch(affine, _own_norm(layer.norm, affine), f)


def _own_norm(norm: nn.Module | None, affine: Affine) -> nn.Module | None:
    if (
        type(norm) is nn.LayerNorm
        and type(affine) is nn.Linear
        and norm.normalized_shape == (affine.out_features,)
        and norm.weight is not None
        and norm.bias is not None
        and norm.weight.dtype == affine.weight.dtype
    ):
        # The same function in the form that fuses.
        fusible = BranchNorm(affine.out_features, eps=norm.eps).train(norm.training)
        fusible.weight, fusible.bias = copy.deepcopy(norm.weight), copy.deepcopy(norm.bias)
        return fusible
    return copy.deepcopy(norm)


def _identical(one: Branch, other: Branch) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return repr(one) == repr(other) and all(
        mine[key].device == theirs[key].device
        and mine[key].dtype == theirs[key].dtype
        and torch.equal(mine[key], theirs[key])
        for key in mine
    )


@torch.no_grad()
def _redraw(branch: Branch, init: Callable[[nn.Module], Any] | None) -> None:
    """Draw the branch's weights anew, the way its present ones were drawn."""
    affine: Any = branch.affine
    gain = _orthogonal_gain(affine.weight)
    zero_bias = affine.bias is not None and not affine.bias.any()
    affine.reset_parameters()
    if zero_bias:
        affine.bias.zero_()
    if init is not None:
        init(affine)
    elif gain is not None:
        weight = affine.weight
        # There is no orthogonal draw in half precision.
        precise = torch.promote_types(weight.dtype, torch.float32)
        weight.copy_(nn.init.orthogonal_(torch.empty_like(weight, dtype=precise), gain))
    for part in (branch.norm, branch.activation):
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()  # type: ignore[union-attr, operator]


def _orthogonal_gain(weight: Tensor) -> float | None:
    """Return g if the weight is g times an orthogonal matrix, None if it is not."""
    matrix = weight.detach().flatten(1).cpu().double()
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    gram = matrix @ matrix.T
    square = gram.diagonal().mean()
    tolerance = max(1e-4, torch.finfo(weight.dtype).eps)
    off = (gram - square * torch.eye(len(gram), dtype=gram.dtype)).abs().max()
    return square.sqrt().item() if square > 0 and off <= tolerance * square else None


def _describe(layer: Layer, product: nn.Module) -> Change:
    affine = layer.affine
    if isinstance(affine, nn.Linear):
        shape = f"{affine.in_features}, {affine.out_features}"
    else:
        kernel = "x".join(map(str, affine.kernel_size))
        shape = f"{affine.in_channels}, {affine.out_channels}, {kernel}"
    before = [f"{type(affine).__name__}({shape})", *(type(p).__name__ for p in layer.parts[1:])]
    if isinstance(product, FusedHadamard):
        f = f"{activation_name(product.activation)}, {product.branch_count} branches"
        norm = "" if product.norm is None else "layer norm, "
        after = f"{type(product).__name__}({shape}, {norm}{f})"
    else:
        branches: Any = product.branches
        f = type(branches[0].activation).__name__
        after = f"Hadamard({' + '.join([*before[:-1], f])}, {len(branches)} branches)"
    old = sum(map(_count, layer.parts))
    return Change(layer.name, " + ".join(before), after, old, _count(product))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _successors(layer: Layer, product: nn.Module) -> dict[Tensor, list[nn.Parameter]]:
    """Map each old parameter to those that take its place in an optimizer's groups."""
    assert layer.activation is not None
    old = dict(Branch(layer.affine, layer.norm, layer.activation).named_parameters())
    new: dict[Tensor, list[nn.Parameter]] = {parameter: [] for parameter in old.values()}
    for name, parameter in product.named_parameters():
        role = re.sub(r"^branches\.\d+\.", "", name)
        # A new activation may have parameters where the old had none.
        new[old.get(role, old["affine.weight"])].append(parameter)
    return new


def _swap(model: nn.Module, swaps: Mapping[nn.Module, nn.Module]) -> None:
    """Put the new modules wherever the old ones are registered."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in swaps:
                parent.register_module(name, swaps[child])


def _update(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    successors: Mapping[Tensor, list[nn.Parameter]],
) -> bool:
    """Hand the new parameters to an optimizer in place of the old; say whether it held any."""
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
