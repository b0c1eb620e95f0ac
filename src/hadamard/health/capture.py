"""Catch hidden representations while a network runs, and who reads them."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hadamard.health.bias import AFFINE
from hadamard.health.dormant import Kind
from hadamard.health.samples import resolve_feature_dim

M = TypeVar("M", bound=nn.Module)
LayerChoice = str | Sequence[str] | Callable[[str, nn.Module], bool]

_MARK = "_hadamard_representation"
_NOT_HIDDEN = (
    nn.MultiheadAttention,
    nn.Softmax,
    nn.Softmax2d,
    nn.Softmin,
    nn.LogSoftmax,
)
_ZERO_WHEN_OFF = (nn.ReLU, nn.ReLU6, nn.Threshold)


def _activation_functions() -> dict[Any, str]:
    names = "relu relu_ relu6 tanh sigmoid elu elu_ selu celu gelu silu mish leaky_relu softplus "
    names += "hardtanh hardswish hardsigmoid softsign rrelu prelu tanh_ sigmoid_ selu_ celu_"
    table = {}
    for name in names.split():
        for home in (F, torch, torch.Tensor):
            if hasattr(home, name):
                table[getattr(home, name)] = name.rstrip("_")
    return table


ACTIVATION_FUNCTIONS = _activation_functions()


def mark(module: M, kind: Kind = "auto") -> M:
    """Mark a module's output as a hidden representation.

    Where a network has marked modules, the diagnosis measures those and nothing else. ``kind``
    says how dormancy is judged, as in ``dormant``.

    Examples:
        >>> encoder = mark(nn.Sequential(nn.Linear(4, 8), nn.Tanh()), kind="tanh")
    """
    if kind not in ("relu", "tanh", "auto"):
        raise ValueError(f"kind must be 'relu', 'tanh' or 'auto', got {kind!r}")
    setattr(module, _MARK, kind)
    return module


Order = Literal["features first", "features last"]


class Reader(NamedTuple):
    """A layer that takes a representation as its input, and in which order where it is flat."""

    name: str
    layer: nn.Module
    order: Order


@dataclass
class Representation:
    """One hidden representation as it was during the forward pass."""

    name: str
    kind: Kind
    values: Tensor
    """A copy: what the network does to the tensor afterwards does not matter."""
    original: Tensor
    feature_dim: int | None = None
    """Which dimension holds the features, where its shape does not tell."""
    readers: list[Reader] = field(default_factory=list)
    """The affine layers that took it as their input."""

    def order_in(self, x: Tensor) -> Order | None:
        """Say how ``x`` is this representation, as it is or flattened; None: it is not."""
        original = self.original
        if x is original:
            return "features first"
        if x.shape == original.shape:  # passed through Identity, or a dropout that is off
            same = x.data_ptr() == original.data_ptr() and x.stride() == original.stride()
            return "features first" if same else None
        orders: dict[Order, Tensor] = {"features first": self.values}
        if self.values.dim() > 2 and resolve_feature_dim(self.values, self.feature_dim) == 1:
            orders["features last"] = self.values.movedim(1, -1)
        for order, values in orders.items():
            flat = values.flatten(1)
            if x.shape == flat.shape and x.dtype == flat.dtype and torch.equal(x, flat):
                return order
        return None


def _kind_of(module: nn.Module) -> Kind:
    kind: Kind | None = getattr(module, _MARK, None) or getattr(module, "dormancy_kind", None)
    if kind is not None:
        return kind
    if isinstance(module, _ZERO_WHEN_OFF):
        return "relu"
    return "tanh" if is_activation(module) else "auto"


def is_activation(module: nn.Module) -> bool:
    """Say whether a module is an activation, or a layer that ends in one (a Hadamard layer)."""
    if hasattr(module, "dormancy_kind"):
        return True
    return type(module).__module__ == nn.ReLU.__module__ and not isinstance(module, _NOT_HIDDEN)


def choose(model: nn.Module, layers: LayerChoice | None) -> tuple[dict[str, nn.Module], bool]:
    """Return the modules to measure by name, and whether bare functions are to be caught too."""
    named = {name: module for name, module in model.named_modules() if name}
    if layers is None:
        marked = {name: m for name, m in model.named_modules() if hasattr(m, _MARK)}
        if marked:
            return marked, False
        found: dict[str, nn.Module] = {}
        for name, module in model.named_modules():
            inside = any(name.startswith(f"{outer}.") or outer == "" for outer in found)
            if is_activation(module) and not inside:
                found[name] = module
        return found, True
    if callable(layers):
        chosen = {name: module for name, module in named.items() if layers(name, module)}
        if not chosen:
            raise ValueError(f"the layers predicate chose none of: {', '.join(named)}")
        return chosen, False
    chosen = {}
    for pattern in [layers] if isinstance(layers, str) else layers:
        hits = fnmatch.filter(named, pattern)
        if not hits:
            near = difflib.get_close_matches(pattern, named, n=3, cutoff=0.3)
            raise ValueError(
                f"no layer is called {pattern!r}; nearest: {', '.join(near) or 'none'}. "
                f"The network has: {', '.join(named) or 'no submodules'}"
            )
        chosen.update({name: named[name] for name in hits})
    return chosen, False


class _Recorder(TorchFunctionMode):
    """Collects representations from module hooks and from bare activation functions."""

    def __init__(self, catch_functions: bool) -> None:
        super().__init__()
        self.found: list[Representation] = []
        self.catch_functions = catch_functions
        self._inside = 0
        self._last_output: tuple[Tensor | None, str] = (None, "")
        self._last_affine: nn.Module | None = None

    def record(self, name: str, kind: Kind, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise TypeError(
                f"{name or 'the network'} returned {type(output).__name__}, and a representation "
                "is one tensor: choose a layer inside it"
            )
        calls = sum(r.name.partition(" (call")[0] == name for r in self.found)
        if calls:
            name = f"{name} (call {calls + 1})"
        # (batch, channels, length) looks just like (batch, tokens, features).
        sequence = isinstance(self._last_affine, nn.Conv1d) and output.dim() == 3
        feature_dim = 1 if sequence else None
        self.found.append(Representation(name, kind, output.detach().clone(), output, feature_dim))

    def on_output(self, name: str, kind: Kind, _module: Any, _args: Any, output: Any) -> None:
        self.record(name, kind, output)

    def on_enter(self, *_: Any) -> None:
        self._inside += 1

    def on_leave(self, *_: Any) -> None:
        self._inside -= 1

    def on_affine_input(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._last_affine = module
        if args and isinstance(args[0], Tensor):
            for representation in self.found:
                order = representation.order_in(args[0])
                if order is not None:
                    representation.readers.append(Reader(name, module, order))

    def on_any_output(self, name: str, _module: Any, _args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self._last_output = (output, name)

    def __torch_function__(
        self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = ACTIVATION_FUNCTIONS.get(func) if self.catch_functions else None
        if name is None or self._inside:
            return func(*args, **(kwargs or {}))
        last, module_name = self._last_output
        where = module_name if args and args[0] is last else ""
        output = func(*args, **(kwargs or {}))
        for representation in self.found:
            if args and args[0] is representation.original and torch.equal(args[0], output):
                # It changed nothing (a ReLU on a product of ReLUs): the same representation.
                representation.original = output
                return output
        kind: Kind = "relu" if name in ("relu", "relu6") else "tanh"
        self.record(f"{where}:{name}" if where else name, kind, output)
        return output


@contextmanager
def _hooks(model: nn.Module, chosen: dict[str, nn.Module], recorder: _Recorder) -> Iterator[None]:
    with ExitStack() as stack:

        def keep(handle: Any) -> None:
            stack.callback(handle.remove)

        for name, module in model.named_modules():
            if isinstance(module, AFFINE):
                on_input = functools.partial(recorder.on_affine_input, name)
                keep(module.register_forward_pre_hook(on_input))
            if not any(True for _ in module.children()):
                keep(module.register_forward_hook(functools.partial(recorder.on_any_output, name)))
        for name, module in chosen.items():
            # Functions inside a chosen module are its own affair: its output is measured.
            keep(module.register_forward_pre_hook(recorder.on_enter))
            keep(module.register_forward_hook(recorder.on_leave))
            on_output = functools.partial(recorder.on_output, name, _kind_of(module))
            keep(module.register_forward_hook(on_output))
        yield


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, eager, without gradients; modes and random state restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    try:
        with (
            torch.random.fork_rng(devices=list(devices)),
            torch.compiler.set_stance("force_eager"),
            torch.no_grad(),
        ):
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training


def capture(
    model: nn.Module, run: Callable[[], Any], layers: LayerChoice | None = None
) -> list[Representation]:
    """Run the network once and return its hidden representations in the order they arose.

    Hooks are removed whatever happens. The network's parameters, buffers, training modes and
    the global random state are as before.
    """
    chosen, catch_functions = choose(model, layers)
    recorder = _Recorder(catch_functions)
    with _undisturbed(model), _hooks(model, chosen, recorder), recorder:
        run()
    if not recorder.found:
        raise ValueError(
            f"{type(model).__name__} showed no hidden representation: "
            + (
                f"none of {', '.join(chosen)} was called during the forward pass"
                if chosen
                else "it has no activation; name the layers to measure (layers=...), or mark them"
            )
        )
    return recorder.found
