"""Capture a network's hidden representations in a forward pass, and the layers that read them."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hadamard.health.dormant import Kind
from hadamard.health.outputs import named_outputs, tensors
from hadamard.health.random_state import RandomDraws, random_state_restored
from hadamard.health.replica import Replica
from hadamard.health.samples import resolve_feature_dim
from hadamard.health.selection import (
    LayerChoice,
    choose_modules,
    dormancy_rule,
    measured_modules,
)
from hadamard.modules import AFFINE

_ONE_AT_A_TIME = threading.RLock()
"""Held while a network runs: the stance of torch.compile is one for all threads."""
_SEARCH_DEPTH = 3
"""How many objects inside each other may lie between ``forward`` and the network."""


def _activation_functions() -> dict[Any, str]:
    names = "relu relu_ relu6 tanh sigmoid elu elu_ selu celu gelu silu mish leaky_relu softplus "
    names += "hardtanh hardswish hardsigmoid softsign rrelu prelu tanh_ sigmoid_ selu_ celu_"
    table = {}
    for name in names.split():
        for namespace in (F, torch, torch.Tensor):
            if hasattr(namespace, name):
                table[getattr(namespace, name)] = name.rstrip("_")
    return table


ACTIVATION_FUNCTIONS = _activation_functions()


Order = Literal["features first", "features last"]
DictAs = Literal["keywords", "positional"]
"""Whether a dict of inputs is keyword arguments, or one positional argument."""


class Reader(NamedTuple):
    """A layer that has a representation as its input, and the order of the input's dimensions."""

    name: str
    layer: nn.Module
    order: Order


class Site(NamedTuple):
    """Where a module was called."""

    callers: tuple[str, ...]
    """The modules around the call, outermost first."""
    after: str
    """The module or representation whose output it was called on; empty if it is not known."""


@dataclass
class Representation:
    """One hidden representation in a forward pass."""

    name: str
    kind: Kind
    values: Tensor
    """A copy, because the network may change the tensor in place later."""
    original: Tensor
    feature_dim: int | None = None
    """The dimension that holds the features, if it cannot be inferred from the shape."""
    readers: list[Reader] = field(default_factory=list)
    """The affine layers that have it as their input."""
    writer: str | None = None
    """The name of the affine layer that was called last before it; None if none was."""
    site: Site = field(default_factory=lambda: Site((), ""))
    """Where its module was called."""

    def order_in(self, x: Tensor) -> Order | None:
        """Return the order of dimensions in which ``x`` is this representation; None if it is not.

        A flattened representation counts too.
        """
        original = self.original
        if x is original:
            return "features first"
        if x.shape == original.shape:  # after an Identity, or a Dropout in evaluation mode
            same_memory = x.data_ptr() == original.data_ptr() and x.stride() == original.stride()
            return "features first" if same_memory else None
        orders: dict[Order, Tensor] = {"features first": self.values}
        if self.values.dim() > 2 and resolve_feature_dim(self.values, self.feature_dim) == 1:
            orders["features last"] = self.values.movedim(1, -1)
        for order, values in orders.items():
            flat = values.flatten(1)
            if x.shape == flat.shape and x.dtype == flat.dtype and _equal(x, flat):
                return order
        return None


def _told_apart(representations: list[Representation]) -> list[Representation]:
    """Give representations of one name, whose module was called repeatedly, different names."""
    groups: dict[str, list[Representation]] = {}
    for representation in representations:
        groups.setdefault(representation.name, []).append(representation)
    for name, group in groups.items():
        if len(group) == 1:
            continue
        around_all = set.intersection(*(set(r.site.callers) for r in group))
        numbers: Counter[str] = Counter()
        for representation in group:
            own = [c for c in representation.site.callers if c not in around_all]
            place = f"in {own[-1]}" if own else f"after {representation.site.after}"
            label = name if place == "after " else f"{name} ({place})"
            numbers[label] += 1
            count = numbers[label]
            representation.name = label if count == 1 else f"{label} (call {count})"
    return representations


def _equal(x: Tensor, y: Tensor) -> bool:
    """Say whether tensors are equal; NaN equals NaN."""
    if torch.equal(x, y):
        return True
    return bool(x.isnan().any()) and torch.allclose(x, y, rtol=0, atol=0, equal_nan=True)


class _Recorder(TorchFunctionMode):
    """Collects representations from module hooks and from calls of activation functions."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0  # how many of the chosen modules are running
        self.take()

    def take(self) -> list[Representation]:
        """Return what was recorded since the last call."""
        recorded = _told_apart(getattr(self, "representations", []))
        self.representations: list[Representation] = []
        self._stack: list[str] = []  # the names of the modules that are running, outermost first
        self._sites: list[Site] = []  # where those of them that are chosen were called
        self._last_output: tuple[Tensor | None, str] = (None, "")
        self._last_affine: nn.Module | None = None
        self._writer: str | None = None
        return recorded

    def record(self, name: str, kind: Kind, output: Tensor, site: Site) -> None:
        # Shape alone cannot distinguish (batch, channels, length) and (batch, tokens, features).
        is_sequence = isinstance(self._last_affine, nn.Conv1d) and output.dim() == 3
        feature_dim = 1 if is_sequence else None
        self.representations.append(
            Representation(
                name,
                kind,
                output.detach().clone(),
                output,
                feature_dim,
                writer=self._writer,
                site=site,
            )
        )

    def on_output(
        self, name: str, kind: Kind, wanted: Set[str], module: nn.Module, _args: Any, output: Any
    ) -> None:
        outputs = named_outputs(module, output)
        missing = wanted - outputs.keys()
        if not outputs or missing:
            of = f"{sorted(missing)[0]!r}" if missing else type(output).__name__
            raise TypeError(
                f"{name or 'the network'} returned {of}, but a representation must be one tensor: "
                "choose a layer inside it"
                if not outputs
                else f"{name} has no output {of}; it has: {', '.join(filter(None, outputs))}"
            )
        site = self._sites.pop()
        for part, values in outputs.items():
            if not wanted or part in wanted:
                self.record(f"{name}.{part}" if part else name, kind, values, site)

    def _site(self, args: Any) -> Site:
        return Site(tuple(self._stack), self._after(args))

    def _after(self, args: Any) -> str:
        last_output, source = self._last_output
        x = args[0] if args else None
        if isinstance(x, Tensor):
            for representation in reversed(self.representations):
                if x is representation.original:
                    return representation.name
            if x is last_output and source:
                return source
        return ""

    def on_enter(self, _module: Any, args: Any) -> None:
        self._depth += 1
        self._sites.append(self._site(args))

    def on_leave(self, *_: Any) -> None:
        self._depth -= 1

    def on_call(self, name: str, *_: Any) -> None:
        self._stack.append(name)

    def on_return(self, *_: Any) -> None:
        self._stack.pop()

    def on_affine_input(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._last_affine, self._writer = module, name
        if args and isinstance(args[0], Tensor):
            for representation in self.representations:
                order = representation.order_in(args[0])
                if order is not None:
                    representation.readers.append(Reader(name, module, order))

    def on_any_output(self, name: str, _module: Any, _args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self._last_output = (output, name)

    def __torch_function__(
        self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = ACTIVATION_FUNCTIONS.get(func)
        if name is None or self._depth:
            return func(*args, **(kwargs or {}))
        last_output, module_name = self._last_output
        prefix = f"{module_name}:" if module_name and args and args[0] is last_output else ""
        site = self._site(())
        output = func(*args, **(kwargs or {}))
        for representation in self.representations:
            if args and args[0] is representation.original and torch.equal(args[0], output):
                # The function changed nothing (a ReLU after a product of ReLUs).
                representation.original = output
                return output
        kind: Kind = "relu" if name in ("relu", "relu6") else "tanh"
        self.record(prefix + name, kind, output, site)
        return output


@contextmanager
def _hooks(
    model: nn.Module,
    chosen: dict[str, nn.Module],
    wanted: Mapping[str, Set[str]],
    recorder: _Recorder,
) -> Iterator[None]:
    with ExitStack() as stack:

        def remove_at_exit(handle: Any) -> None:
            stack.callback(handle.remove)

        for name, module in measured_modules(model):
            if isinstance(module, AFFINE):
                on_input = functools.partial(recorder.on_affine_input, name)
                remove_at_exit(module.register_forward_pre_hook(on_input))
            if any(True for _ in module.children()):
                enter = functools.partial(recorder.on_call, name)
                remove_at_exit(module.register_forward_pre_hook(enter))
                remove_at_exit(module.register_forward_hook(recorder.on_return))
            else:
                remove_at_exit(
                    module.register_forward_hook(functools.partial(recorder.on_any_output, name))
                )
        for module in model.modules():
            if getattr(module, "measured", True) is False:
                remove_at_exit(module.register_forward_pre_hook(recorder.on_enter))
                remove_at_exit(module.register_forward_hook(recorder.on_leave))
        for name, module in chosen.items():
            # Functions inside a chosen module are not captured: its output is measured instead.
            remove_at_exit(module.register_forward_pre_hook(recorder.on_enter))
            remove_at_exit(module.register_forward_hook(recorder.on_leave))
            on_output = functools.partial(
                recorder.on_output, name, dormancy_rule(module), wanted.get(name, frozenset())
            )
            remove_at_exit(module.register_forward_hook(on_output))
        yield


def capture(
    model: nn.Module,
    call: Callable[..., Any],
    inputs: Any,
    layers: LayerChoice | None = None,
    dict_as: DictAs = "keywords",
) -> list[Representation]:
    """Call a function of the network once; return hidden representations in order of computation.

    What runs is a replica of the network, in evaluation mode and without gradients. The network
    itself gets no hooks and stays in its mode, so another thread may train it meanwhile.
    """
    return capture_alike(model, [model], call, [inputs], layers, dict_as)[0]


def capture_alike(
    first: nn.Module,
    models: Sequence[nn.Module],
    call: Callable[..., Any],
    inputs: Sequence[Any],
    layers: LayerChoice | None,
    dict_as: DictAs = "keywords",
) -> list[list[Representation]]:
    """Capture networks that differ from the first in their parameters and buffers only.

    As ``capture``, for a function of the first one. All run in one replica of it.
    """
    chosen, wanted, capture_functions = choose_modules(first, layers)
    replica = Replica(first)
    run = replica.rebuilt(call, depth=_SEARCH_DEPTH)
    if run is call:
        raise ValueError(
            f"forward={call!r} does not run the network: pass one of its methods, or a function "
            "that uses the network directly"
        )
    copies = {name: replica.module(module) for name, module in chosen.items()}
    recorder = _Recorder()
    captured = []
    draws: RandomDraws | None = None
    with (
        _ONE_AT_A_TIME,
        torch.compiler.set_stance("force_eager"),
        torch.no_grad(),
        _hooks(replica.module(first), copies, wanted, recorder),
    ):
        for model, own_inputs in zip(models, inputs, strict=True):
            if model is not first:
                replica.take_weights(model)
            functions = recorder if capture_functions else nullcontext()
            # Watching takes longer than running a small network. They draw alike, or not at all.
            watched = draws is None or draws.any_seen
            watch = random_state_restored(model) if watched else nullcontext(draws)
            with watch as draws, functions:
                _run(run, tensors(own_inputs, model), dict_as)
            captured.append(recorder.take())
    if not all(captured):
        raise ValueError(
            f"{type(first).__name__} has no hidden representation to measure: "
            + (
                f"none of {', '.join(chosen)} was called in the forward pass"
                if chosen
                else "it has no activation; name the layers to measure (layers=...), or mark them"
            )
        )
    for model, representations in zip(models, captured, strict=True):
        for representation in representations if model is not first else ():
            representation.readers = [_own(reader, model) for reader in representation.readers]
    return captured


def _run(call: Callable[..., Any], inputs: Any, dict_as: DictAs) -> None:
    if isinstance(inputs, Mapping) and dict_as == "keywords":
        call(**inputs)
    elif isinstance(inputs, tuple | list):
        call(*inputs)
    else:
        call(inputs)


def _own(reader: Reader, model: nn.Module) -> Reader:
    """Return a reader with a replica of a network's own layer."""
    layer = model.get_submodule(reader.name)
    return reader._replace(layer=Replica(layer).module(layer))
