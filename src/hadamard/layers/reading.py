"""Read from a network's forward methods what follows each linear or convolutional layer.

Every forward is traced with ``torch.fx`` on its own, with its submodules as single steps (pure
Sequentials are looked into). Nothing is changed: what tracing leaves behind is put back.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import activation as activation_modules
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from hadamard.layers.activations import Function
from hadamard.layers.conv import Conv2d
from hadamard.layers.hadamard import FusedHadamard, Hadamard
from hadamard.layers.norm import BranchNorm

Affine = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d

AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORM = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, BranchNorm)
_NOT_HIDDEN = {"MultiheadAttention", "Softmax", "Softmax2d", "Softmin", "LogSoftmax"}
_STANDARD = [getattr(activation_modules, k) for k in activation_modules.__all__]
_ACTIVATION = (*(kind for kind in _STANDARD if kind.__name__ not in _NOT_HIDDEN), Function)
# F.leaky_relu, torch.tanh and x.relu_() by the name of the module to write instead.
_FUNCTIONAL = {kind.__name__.lower(): kind.__name__ for kind in _ACTIVATION[:-1]}
_OPAQUE = (Hadamard, FusedHadamard, nn.MultiheadAttention)
_CONTAINER = (nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class Layer:
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
        """The layer, its norm and its activation, as far as there are any."""
        return [part for part in (self.affine, self.norm, self.activation) if part is not None]


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


class Network:
    """Who owns, calls and shares what in a model, as far as its forward methods can be read."""

    def __init__(self, model: nn.Module, relu_may_stay: bool) -> None:
        # A ReLU called as a function cannot be taken out, but does nothing to a product of
        # ReLUs, which is never negative: such a layer reads as if it were followed by this one.
        self.function_relu = nn.ReLU() if relu_may_stay else None
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
        self.layers = [self._layer(m) for m in self.names if isinstance(m, AFFINE)]

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
        layers = [module for module in called.values() if isinstance(module, AFFINE)]
        if _is_chain(owner) and any(self.calls[layer] for layer in layers):
            return set()  # a forward around it calls its members one by one
        self.called |= called
        for node, module in called.items():
            self.calls[module].append(node)
        return tracer.looked_into

    def _layer(self, affine: Affine) -> Layer:
        """Read what follows a layer, and whether anything stands against converting it."""
        names = tuple(self.names[affine])
        layer = Layer(names[0], names, affine)
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

    def _follow(self, layer: Layer, node: fx.Node) -> Layer:
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
            if kind == "ReLU" and self.function_relu is not None:
                return replace(layer, activation=self.function_relu, steps=steps)
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
        if part is affine and type(part) not in (*AFFINE, Conv2d):
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

    def shared(self, layers: Sequence[Layer]) -> dict[str, str]:
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
