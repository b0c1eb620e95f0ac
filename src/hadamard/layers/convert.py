"""Turn hidden layers of an existing network into Hadamard layers, in place.

Everything is planned first: what follows each layer is read from the forward methods (traced
with ``torch.fx``), obstacles are found, new weights are drawn. Only then is the network changed,
so a refused conversion leaves no trace.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import activation as activation_modules
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from hadamard.layers.activations import ActivationLike, Function, activation_name, make_activation
from hadamard.layers.branch import Branch
from hadamard.layers.hadamard import FusedHadamard, Hadamard, _check_branch_count, fuse
from hadamard.layers.norm import BranchNorm

Affine = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
Where = str | Iterable[str] | Callable[[str, nn.Module], bool]

_AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORM = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, BranchNorm)
_NOT_HIDDEN = {"MultiheadAttention", "Softmax", "Softmax2d", "Softmin", "LogSoftmax"}
_STANDARD = [getattr(activation_modules, k) for k in activation_modules.__all__]
_ACTIVATION = (*(kind for kind in _STANDARD if kind.__name__ not in _NOT_HIDDEN), Function)
# F.leaky_relu, torch.tanh and x.relu_() by the name of the module to write instead.
_FUNCTIONAL = {kind.__name__.lower(): kind.__name__ for kind in _ACTIVATION[:-1]}
_OPAQUE = (Hadamard, FusedHadamard, nn.MultiheadAttention)
_CONTAINER = (nn.ModuleList, nn.ModuleDict)


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
    """What :func:`hadamardize` did; print it for a table."""

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


@dataclass(frozen=True)
class _Layer:
    """A linear or convolutional layer and what follows it."""

    name: str
    aliases: tuple[str, ...]
    affine: Affine
    norm: nn.Module | None = None
    activation: nn.Module | None = None
    steps: frozenset[fx.Node] = frozenset()  # the calls of its norm and activation
    problem: str = ""
    is_output: bool = False

    @property
    def parts(self) -> list[nn.Module]:
        return [part for part in (self.affine, self.norm, self.activation) if part is not None]


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

    >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    >>> hadamardize(net).changed[0].after
    'HadamardLinear(4, 64, relu, 2 branches)'
    >>> net(torch.zeros(1, 4)).shape
    torch.Size([1, 2])
    """
    known = _check_arguments(model, branches, init, optimizers)
    replacement = None if activation is None else make_activation(activation)
    chosen, skipped = _choose(model, where)

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
    _check_branch_count(branches)
    if init is not None and not callable(init):
        raise TypeError(f"init must be callable on a new module, got {type(init).__name__}")
    known = list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]
    for optimizer in known:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizers must be torch optimizers, got {type(optimizer).__name__}")
    for module in model.modules():
        known += [v for v in vars(module).values() if isinstance(v, torch.optim.Optimizer)]
    return known


class _Tracer(fx.Tracer):
    """Records the calls one forward makes of its submodules, looking into Sequentials only."""

    # Without this, a buffer updated in place would really be updated by the tracing.
    proxy_buffer_attributes = True

    def __init__(self) -> None:
        super().__init__()
        self.looked_into: set[nn.Module] = set()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        if _is_chain(m):
            self.looked_into.add(m)
        return not _is_chain(m)


def _is_chain(module: nn.Module) -> bool:
    return type(module).forward is nn.Sequential.forward and not _has_hooks(module)


def _has_hooks(module: nn.Module) -> bool:
    own = vars(module)
    return "forward" in own or any(own[key] for key in own if key.endswith("_hooks"))


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Undo what running a forward method may leave behind on the model and in the generators."""
    saved = [
        (live, dict(live))
        for m in model.modules()
        for live in (vars(m), m._parameters, m._buffers, m._modules)
    ]
    gpus = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            for live, before in saved:
                live.clear()
                live.update(before)


class _Network:
    """Who owns, calls and shares what in a model, as far as its forward methods can be read."""

    def __init__(self, model: nn.Module) -> None:
        self.names: dict[nn.Module, list[str]] = defaultdict(list)
        self.owners: dict[nn.Module, list[nn.Module]] = defaultdict(list)
        self.holders: dict[Tensor, list[nn.Module]] = defaultdict(list)
        self.kept: dict[nn.Module, str] = {}  # in plain attributes, where no swap reaches
        self.calls: dict[nn.Module, list[fx.Node]] = defaultdict(list)
        self.called: dict[fx.Node, nn.Module] = {}
        self.unreadable: dict[nn.Module, str] = {}
        opaque: set[nn.Module] = set()
        for name, module in model.named_modules(remove_duplicate=False):
            if isinstance(module, _OPAQUE):
                opaque.update(list(module.modules())[1:])
            if module not in opaque:
                self.names[module].append(name)
        owners = [m for m in self.names if m is model or not isinstance(m, _CONTAINER + _OPAQUE)]
        for module in self.names:
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.holders[parameter].append(module)
            for attribute, value in vars(module).items():
                if attribute != "_modules":
                    where = f"{type(module).__name__}.{attribute}"
                    self.kept.update((kept, where) for kept in _modules_in(value))
        for owner in owners:
            self._own(owner, owner)
        with _restored(model):
            # A Sequential comes last: if a forward around it was read, that says how it is used.
            chains: set[nn.Module] = set()
            for owner in sorted(owners, key=_is_chain):
                if owner._modules and owner not in chains:
                    chains |= self._trace(owner)
        self.layers = [self._layer(m) for m in self.names if isinstance(m, _AFFINE)]

    def _own(self, owner: nn.Module, container: nn.Module) -> None:
        for child in container._modules.values():
            if child is not None:
                self.owners[child].append(owner)
                if isinstance(child, _CONTAINER):
                    self._own(owner, child)

    def _trace(self, owner: nn.Module) -> set[nn.Module]:
        """Record the calls a forward makes; return the Sequentials it runs as a whole."""
        kind = type(owner).__name__
        if type(owner).forward is nn.Module.forward:
            self.unreadable[owner] = f"{kind} defines no forward() that shows what follows it"
            return set()
        tracer = _Tracer()
        try:
            if "forward" in vars(owner):
                raise TypeError("it was replaced on the instance")
            nodes = list(tracer.trace(owner).nodes)
        except Exception as error:  # the forward is the user's code: it may raise anything
            first = str(error).partition("\n")[0]
            self.unreadable[owner] = f"the forward() of {kind} cannot be read ({first})"
            return set()
        called = {n: owner.get_submodule(str(n.target)) for n in nodes if n.op == "call_module"}
        layers = [module for module in called.values() if isinstance(module, _AFFINE)]
        if _is_chain(owner) and any(self.calls[layer] for layer in layers):
            return set()  # a forward around it calls its members one by one
        self.called |= called
        for node, module in called.items():
            self.calls[module].append(node)
        return tracer.looked_into

    def _layer(self, affine: Affine) -> _Layer:
        """Read what follows a layer, and whether anything stands against converting it."""
        names = tuple(self.names[affine])
        layer = _Layer(names[0], names, affine)
        for owner in self.owners[affine]:
            if owner in self.unreadable:
                remedy = "put the layer and its activation into an nn.Sequential"
                return replace(layer, problem=f"{self.unreadable[owner]}; {remedy}")
        if not self.calls[affine]:
            return replace(layer, problem="no forward() that can be read calls it")
        found = [self._follow(layer, node) for node in self.calls[affine]]
        first = min(found, key=lambda one: one.is_output)
        if any(one.parts != first.parts for one in found):
            problem = "it is called in several places, which do not go through the same activation"
            return replace(layer, problem=problem)
        if first.problem:
            return first
        problems = [self._obstacle(part, affine) for part in first.parts]
        steps = frozenset[fx.Node]().union(*(one.steps for one in found))
        return replace(first, steps=steps, problem=next(filter(None, problems), ""))

    def _follow(self, layer: _Layer, node: fx.Node) -> _Layer:
        """Follow the output of one call through a norm to the activation."""
        users = list(node.users)
        if len(users) != 1:
            if any(isinstance(self.called.get(u), _ACTIVATION) or _functional(u) for u in users):
                problem = "its output is used elsewhere too, before the activation"
                return replace(layer, problem=problem)
            return replace(layer, is_output=True, problem="no activation follows it")
        (user,) = users
        module = self.called.get(user)
        steps = layer.steps | {user}
        if isinstance(module, nn.Identity):
            return self._follow(layer, user)
        if isinstance(module, _NORM) and layer.norm is None:
            return self._follow(replace(layer, norm=module, steps=steps), user)
        if isinstance(module, _ACTIVATION):
            return replace(layer, activation=module, steps=steps)
        if kind := _functional(user):
            problem = (
                "its activation is a function call, which cannot be replaced from outside; "
                f"write it as a module (self.act = nn.{kind}())"
            )
            return replace(layer, problem=problem)
        following = "" if module is None else f" (next: {type(module).__name__})"
        return replace(layer, is_output=True, problem=f"no activation follows it{following}")

    def _obstacle(self, part: nn.Module, affine: nn.Module) -> str:
        """Say what stands against replacing a layer, its norm or its activation."""
        kind = type(part).__name__
        it = "it" if part is affine else f"its {kind}"
        lazy = isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()
        if lazy or any(parameter.is_meta for parameter in part.parameters()):
            return f"{it} has no weights yet; run a forward pass first"
        plain_weight = (nn.Parameter, type(None))
        if is_parametrized(part) or not isinstance(getattr(part, "weight", None), plain_weight):
            return f"{it} is parametrised; convert first, parametrise after"
        if part is affine and type(part) not in _AFFINE:
            return f"it is a {kind}, not a plain layer; build Hadamard(branch, branch) yourself"
        if _has_hooks(part):
            return f"{it} has hooks, which would be lost; remove them and register them after"
        for parameter in part.parameters():
            others = [self.names[m][0] for m in self.holders[parameter] if m is not part]
            if others:
                return f"{it} shares weights with {', '.join(map(repr, others))}; untie them first"
        if part in self.kept:
            return (
                f"{it} is also kept in the plain attribute {self.kept[part]}, which would go on "
                "using the old one; keep it as a registered module only"
            )
        for owner in self.owners[part]:
            if owner in self.unreadable:
                return f"{it} may be used elsewhere too: {self.unreadable[owner]}"
        return ""

    def shared(self, layers: Sequence[_Layer]) -> dict[str, str]:
        """Find layers whose norm or activation is also called after something not converted."""
        replaced = frozenset[fx.Node]().union(*(layer.steps for layer in layers))
        return {
            layer.name: f"its {type(part).__name__} {self.names[part][0]!r} is also called where "
            "nothing is converted; give each layer a module of its own"
            for layer in layers
            for part in layer.parts[1:]
            if not replaced.issuperset(self.calls[part])
        }


def _modules_in(value: object) -> list[nn.Module]:
    if isinstance(value, dict):
        value = list(value.values())
    items = value if isinstance(value, (list, tuple, set)) else [value]
    return [item for item in items if isinstance(item, nn.Module)]


def _functional(node: fx.Node) -> str | None:
    """Name the module that does what this function call does, if that is an activation."""
    if node.op not in ("call_function", "call_method"):
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return _FUNCTIONAL.get(name.replace("_", ""))


def _choose(model: nn.Module, where: Where | None) -> tuple[list[_Layer], dict[str, str]]:
    """Settle which layers are converted, and why others of those asked for are not."""
    if isinstance(model, _AFFINE):
        raise ValueError(
            f"the model is a bare {type(model).__name__}, with no activation to multiply: wrap both"
            " as nn.Sequential(layer, nn.ReLU()), or use HadamardLinear or HadamardConv2d"
        )
    network = _Network(model)
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


def _pick(network: _Network, where: Where) -> tuple[list[_Layer], set[str]]:
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


def _unmatched(network: _Network, pattern: str) -> str:
    names = {name: module for module, names in network.names.items() for name in names}
    aliases = [alias for layer in network.layers for alias in layer.aliases]
    near = difflib.get_close_matches(pattern, aliases, n=1)
    if any(alias.startswith(f"{pattern}.") for alias in aliases):
        near = [f"{pattern}.*"]
    message = f"where={pattern!r} matches no linear or convolutional layer"
    if pattern in names:
        message += f" but a {type(names[pattern]).__name__}"
    return message + (f"; did you mean {near[0]!r}?" if near else ".")


def _hidden(network: _Network) -> str:
    hidden = [layer.name for layer in network.layers if not layer.problem]
    return f" Hidden layers here: {', '.join(hidden) or 'none'}."


def _listing(title: str, reasons: Mapping[str, str]) -> str:
    lines = (f"  {name}: {reason}" if name else f"  {reason}" for name, reason in reasons.items())
    return "\n".join([title, *lines]) + "\n"


def _products(
    layers: Sequence[_Layer],
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


def _own_branch(layer: _Layer, activation: nn.Module | None) -> Branch:
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
        if isinstance(part, BranchNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        elif hasattr(part, "reset_parameters"):
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


def _describe(layer: _Layer, product: nn.Module) -> Change:
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


def _successors(layer: _Layer, product: nn.Module) -> dict[Tensor, list[nn.Parameter]]:
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
