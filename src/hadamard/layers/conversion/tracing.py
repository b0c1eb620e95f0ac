"""Find what follows each linear or convolutional layer, by tracing a network's forward methods.

``torch.fx`` traces every module's forward separately, with its submodules as single steps; only
plain Sequentials are traced into. The network is restored afterwards.
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
from hadamard.layers.fused import FusedHadamard
from hadamard.layers.hadamard import Hadamard
from hadamard.layers.norm import BranchNorm
from hadamard.modules import AFFINE, NOT_HIDDEN

Affine = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d

_NORM = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, BranchNorm)
_STANDARD = [getattr(activation_modules, name) for name in activation_modules.__all__]
_ACTIVATION = (*(cls for cls in _STANDARD if not issubclass(cls, NOT_HIDDEN)), Function)
# The module that does the same as F.leaky_relu, torch.tanh or x.relu_(), by the function's name.
_FUNCTIONAL = {cls.__name__.lower(): cls.__name__ for cls in _ACTIVATION[:-1]}
_OPAQUE = (Hadamard, FusedHadamard, nn.MultiheadAttention)
_CONTAINER = (nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class TracedLayer:
    """A linear or convolutional layer and what follows it."""

    name: str
    aliases: tuple[str, ...]
    affine: Affine
    norm: nn.Module | None = None
    activation: nn.Module | None = None
    steps: frozenset[fx.Node] = frozenset()  #: the calls of its norm and activation
    problem: str = ""  #: why it cannot be converted
    is_output: bool = False

    @property
    def parts(self) -> list[nn.Module]:
        """The layer, and its norm and activation if it has them."""
        return [part for part in (self.affine, self.norm, self.activation) if part is not None]


class _Tracer(fx.Tracer):
    """Records which submodules one forward calls, tracing into plain Sequentials only."""

    # Without this, tracing would update buffers that the forward updates in place.
    proxy_buffer_attributes = True

    def __init__(self) -> None:
        super().__init__()
        self.traced_into: set[nn.Module] = set()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        if _is_chain(m):
            self.traced_into.add(m)
        return not _is_chain(m)


def _is_chain(module: nn.Module) -> bool:
    return type(module).forward is nn.Sequential.forward and not _has_hooks(module)


def _has_hooks(module: nn.Module) -> bool:
    attributes = vars(module)
    return "forward" in attributes or any(
        value for name, value in attributes.items() if name.endswith("_hooks")
    )


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Undo what a forward method changes in the model's attributes and the random generators."""
    saved = [
        (namespace, dict(namespace))
        for m in model.modules()
        for namespace in (vars(m), m._parameters, m._buffers, m._modules)
    ]
    gpus = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            for namespace, before in saved:
                namespace.clear()
                namespace.update(before)


class TracedNetwork:
    """Which modules own, call and share which others, as far as the forwards can be traced."""

    def __init__(self, model: nn.Module, keeps_relu: bool) -> None:
        # A ReLU called as a function cannot be removed, but it does not change a product of ReLUs,
        # which is never negative. A layer before one is treated as if this module followed it.
        self.function_relu = nn.ReLU() if keeps_relu else None
        self.names: dict[nn.Module, list[str]] = defaultdict(list)
        self.owners: dict[nn.Module, list[nn.Module]] = defaultdict(list)
        self.holders: dict[Tensor, list[nn.Module]] = defaultdict(list)
        # Modules that are also in plain attributes, where replacing them has no effect.
        self.plain_attributes: dict[nn.Module, str] = {}
        self.calls: dict[nn.Module, list[fx.Node]] = defaultdict(list)
        self.called: dict[fx.Node, nn.Module] = {}
        self.untraceable: dict[nn.Module, str] = {}
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
                    path = f"{type(module).__name__}.{attribute}"
                    self.plain_attributes.update((held, path) for held in _modules_in(value))
        for owner in owners:
            self._add_owner(owner, owner)
        with _restored(model):
            # Sequentials come last: a forward that calls one has then shown how it is used.
            chains: set[nn.Module] = set()
            for owner in sorted(owners, key=_is_chain):
                if owner._modules and owner not in chains:
                    chains |= self._trace(owner)
        self.layers = [self._layer(m) for m in self.names if isinstance(m, AFFINE)]

    def _add_owner(self, owner: nn.Module, container: nn.Module) -> None:
        """Record the owner of a container's children, also inside nested containers."""
        for child in container._modules.values():
            if child is not None:
                self.owners[child].append(owner)
                if isinstance(child, _CONTAINER):
                    self._add_owner(owner, child)

    def _trace(self, owner: nn.Module) -> set[nn.Module]:
        """Record which submodules a forward calls; return the Sequentials traced as part of it."""
        kind = type(owner).__name__
        if type(owner).forward is nn.Module.forward:
            self.untraceable[owner] = f"{kind} defines no forward() that shows what follows it"
            return set()
        tracer = _Tracer()
        try:
            if "forward" in vars(owner):
                raise TypeError("it was replaced on the instance")
            nodes = list(tracer.trace(owner).nodes)
        except Exception as error:  # users' forwards may raise anything
            reason = str(error).partition("\n")[0]
            self.untraceable[owner] = f"the forward() of {kind} cannot be traced ({reason})"
            return set()
        called = {n: owner.get_submodule(str(n.target)) for n in nodes if n.op == "call_module"}
        layers = [module for module in called.values() if isinstance(module, AFFINE)]
        if _is_chain(owner) and any(self.calls[layer] for layer in layers):
            return set()  # a forward around it calls its members one by one
        self.called |= called
        for node, module in called.items():
            self.calls[module].append(node)
        return tracer.traced_into

    def _layer(self, affine: Affine) -> TracedLayer:
        """Find what follows a layer, and whether it can be converted."""
        names = tuple(self.names[affine])
        layer = TracedLayer(names[0], names, affine)
        for owner in self.owners[affine]:
            if owner in self.untraceable:
                fix = "put the layer and its activation into an nn.Sequential"
                return replace(layer, problem=f"{self.untraceable[owner]}; {fix}")
        if not self.calls[affine]:
            return replace(layer, problem="no forward() that can be traced calls it")
        calls = [self._follow(layer, node) for node in self.calls[affine]]
        first = min(calls, key=lambda call: call.is_output)
        if any(call.parts != first.parts for call in calls):
            problem = "it is called in several places, and a different activation follows in each"
            return replace(layer, problem=problem)
        if first.problem:
            return first
        problems = [self._obstacle(part, affine) for part in first.parts]
        steps = frozenset[fx.Node]().union(*(call.steps for call in calls))
        return replace(first, steps=steps, problem=next(filter(None, problems), ""))

    def _follow(self, layer: TracedLayer, node: fx.Node) -> TracedLayer:
        """Follow the output of one call through an optional norm to the activation."""
        users = list(node.users)
        if len(users) != 1:
            if any(
                isinstance(self.called.get(u), _ACTIVATION) or _functional_activation(u)
                for u in users
            ):
                problem = "its output is also used elsewhere, before the activation"
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
        if kind := _functional_activation(user):
            if kind == "ReLU" and self.function_relu is not None:
                return replace(layer, activation=self.function_relu, steps=steps)
            problem = (
                "its activation is a function call, which cannot be replaced from outside; "
                f"make it a module (self.act = nn.{kind}())"
            )
            return replace(layer, problem=problem)
        next_module = "" if module is None else f" (next: {type(module).__name__})"
        return replace(layer, is_output=True, problem=f"no activation follows it{next_module}")

    def _obstacle(self, part: nn.Module, affine: nn.Module) -> str:
        """Say why a layer, its norm or its activation cannot be replaced; empty if it can."""
        kind = type(part).__name__
        subject = "it" if part is affine else f"its {kind}"
        lazy = isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()
        if lazy or any(parameter.is_meta for parameter in part.parameters()):
            return f"{subject} has no weights yet; run a forward pass first"
        if any(parameter.is_complex() for parameter in part.parameters()):
            return (
                f"{subject} has complex weights; use a real layer, with real and imaginary parts "
                "as separate features (torch.view_as_real)"
            )
        plain_weight = (nn.Parameter, type(None))
        if is_parametrized(part) or not isinstance(getattr(part, "weight", None), plain_weight):
            return f"{subject} is parametrized; convert first, then parametrize"
        if part is affine and type(part) not in (*AFFINE, Conv2d):
            return f"it is a {kind}, not a plain layer; build Hadamard(branch, branch) yourself"
        if _has_hooks(part):
            return f"{subject} has hooks, which would be lost; register them after converting"
        for parameter in part.parameters():
            others = [self.names[m][0] for m in self.holders[parameter] if m is not part]
            if others:
                names = ", ".join(map(repr, others))
                return f"{subject} shares weights with {names}; untie them first"
        if part in self.plain_attributes:
            return (
                f"{subject} is also in the plain attribute {self.plain_attributes[part]}, which "
                "would keep the old one; register it as a submodule only"
            )
        for owner in self.owners[part]:
            if owner in self.untraceable:
                return f"{subject} may also be used elsewhere: {self.untraceable[owner]}"
        return ""

    def shared(self, layers: Sequence[TracedLayer]) -> dict[str, str]:
        """Find layers whose norm or activation is also called where no layer is converted."""
        replaced = frozenset[fx.Node]().union(*(layer.steps for layer in layers))
        return {
            layer.name: f"its {type(part).__name__} {self.names[part][0]!r} is also called where "
            "no layer is converted; give each layer its own"
            for layer in layers
            for part in layer.parts[1:]
            if not replaced.issuperset(self.calls[part])
        }


def _modules_in(value: object) -> list[nn.Module]:
    if isinstance(value, dict):
        value = list(value.values())
    items = value if isinstance(value, (list, tuple, set)) else [value]
    return [item for item in items if isinstance(item, nn.Module)]


def _functional_activation(node: fx.Node) -> str | None:
    """Return the name of the module that computes this function call, if it is an activation."""
    if node.op not in ("call_function", "call_method"):
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return _FUNCTIONAL.get(name.replace("_", ""))
