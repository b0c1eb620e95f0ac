"""A replica of a network: modules of its own that share the network's parameters, buffers and data.

The diagnosis runs a replica, in evaluation mode and with hooks on it, so another thread may train
the network at the same time. As in ``torch.nn.parallel.replicate``, a module's replica has the same
attributes. Only what leads to a module of the network is rebuilt so that it leads to the replica:
containers, bound methods, partials, functions, and objects that hold a module.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any
from weakref import ReferenceType

import torch
from torch import Tensor, nn

# Dicts that a replica has for itself, so that its hooks and tensors do not reach the network.
_OWN_DICTS = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
_PLAIN = {bool, int, float, str, bytes, NoneType, Tensor, nn.Parameter, torch.Size, torch.dtype}
_SEQUENCES = (list, tuple, set, frozenset)
_DICTS = (dict, OrderedDict)
_CONTAINERS = {*_SEQUENCES, *_DICTS}
_UNCOMPILED = "_torchdynamo_orig_callable"
"""On what torch.compile returned: the function that was compiled."""


class Replica:
    """A network's replica in evaluation mode, and what leads to its modules."""

    def __init__(self, network: nn.Module) -> None:
        self._pairs = {id(m): (m, object.__new__(type(m))) for m in network.modules()}
        # Each value is stored beside its result, because the id of a deleted one is used again.
        self._results: dict[tuple[int, int], tuple[Any, Any]] = {}
        for module, copied in self._pairs.values():
            # A copy, because another thread may set attributes during the loop.
            for name, value in vars(module).copy().items():
                own = value.copy() if name in _OWN_DICTS else value
                vars(copied)[name] = self.rebuilt(own)
            vars(copied)["_compiled_call_impl"] = None  # set by Module.compile()
            _gather(copied)
        self.module(network).eval()

    def module(self, module: nn.Module) -> nn.Module:
        """Return the replica of one of the network's modules."""
        return self._pairs[id(module)][1]

    def take_weights(self, network: nn.Module) -> None:
        """Use the parameters and buffers of another network, which is alike, from now on."""
        others = list(network.modules())
        if [type(m) for m in others] != [type(m) for m, _ in self._pairs.values()]:
            raise ValueError(
                f"this {type(network).__name__} is not like the others: it has other modules"
            )
        for (_, copied), other in zip(self._pairs.values(), others, strict=True):
            vars(copied)["_parameters"] = vars(other)["_parameters"].copy()
            vars(copied)["_buffers"] = vars(other)["_buffers"].copy()
            _gather(copied)

    def rebuilt(self, value: Any, depth: int = 1) -> Any:
        """Return the value so that it leads to the replica; the same one if it leads to no module.

        ``depth`` limits the search: that many objects inside each other, not counting modules.
        """
        kind = type(value)
        if kind in _PLAIN or (kind in _CONTAINERS and not value):
            return value
        if id(value) in self._pairs:
            return self._pairs[id(value)][1]
        key = (id(value), depth)
        if key not in self._results:
            self._results[key] = value, value  # for a value that contains itself
            self._results[key] = value, self._rebuild(value, depth)
        return self._results[key][1]

    def _rebuild(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _SEQUENCES:
            old = list(value)
            new = self._all(old, depth)
            return value if new is old else kind(new)
        if kind in _DICTS:
            return self._dict(value, depth)
        if kind is FunctionType:
            uncompiled = getattr(value, _UNCOMPILED, None)
            return (
                self._function(value, depth)
                if uncompiled is None
                else self.rebuilt(uncompiled, depth)
            )
        if kind is MethodType:
            owner = self.rebuilt(value.__self__, depth)
            return value if owner is value.__self__ else MethodType(value.__func__, owner)
        if kind is functools.partial:
            old = [value.func, value.args, value.keywords]
            new = self._all(old, depth)
            return value if new is old else functools.partial(new[0], *new[1], **new[2])
        if kind is ReferenceType:
            referent = self.rebuilt(value(), depth)
            return value if referent is value() else ReferenceType(referent)
        return self._object(value, depth)

    def _all(self, values: list[Any], depth: int) -> list[Any]:
        rebuilt = [self.rebuilt(value, depth) for value in values]
        return values if _same(rebuilt, values) else rebuilt

    def _dict(self, values: dict[Any, Any], depth: int) -> dict[Any, Any]:
        items = list(values.copy().items())
        rebuilt = self._all(items, depth)
        return values if rebuilt is items else type(values)(rebuilt)

    def _function(self, function: FunctionType, depth: int) -> FunctionType:
        """Rebuild a function whose closure, defaults or global names lead to a module."""
        # Of other functions, only those of the same file are searched.
        own_globals = function.__globals__
        names = {
            name: value
            for name in set(_names(function.__code__))
            if (value := own_globals.get(name)) is not None
            and not (isinstance(value, FunctionType) and value.__globals__ is not own_globals)
        }
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        old = [names, cells, function.__defaults__, function.__kwdefaults__]
        new = self._all(old, depth)
        if new is old:
            return function
        names, cells, defaults, keyword_defaults = new
        closure = tuple(
            cell if content is _contents(cell) else CellType(content)
            for cell, content in zip(function.__closure__ or (), cells, strict=True)
        )
        result = FunctionType(
            function.__code__,
            {**own_globals, **names},
            function.__name__,
            defaults,
            closure,
        )
        result.__kwdefaults__ = keyword_defaults
        result.__dict__.update(vars(function))
        return result

    def _object(self, value: Any, depth: int) -> Any:
        """Copy an object that holds a module of the network."""
        is_module = isinstance(value, nn.Module)
        attributes = getattr(value, "__dict__", None)
        if (
            type(attributes) is not dict
            or isinstance(value, type | ModuleType | Tensor)
            or hasattr(type(value), "__del__")  # deleting a copy would release what is shared
            or (depth == 0 and not is_module)
        ):
            return value
        rebuilt = self._dict(attributes, depth if is_module else depth - 1)
        if rebuilt is attributes:
            return value
        copied = object.__new__(type(value))
        vars(copied).update(rebuilt)
        return copied


def _gather(module: nn.Module) -> None:
    """Give a replica whole weights where FSDP keeps a part of each in every process.

    All processes take part, so all of them must diagnose. FSDP's hooks, which would gather the
    weights of the network itself, are dropped.
    """
    for tensors in (module._parameters, module._buffers):
        for name, tensor in tensors.items():
            if hasattr(tensor, "full_tensor"):
                tensors[name] = tensor.full_tensor()  # type: ignore[union-attr]
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in list(hooks.items()):
            owner = getattr(hook, "__self__", None) or getattr(
                getattr(hook, "__wrapped__", None), "__self__", None
            )
            if type(owner).__name__ == "FSDPState":
                del hooks[key]


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(a is b for a, b in zip(first, second, strict=True))


def _names(code: CodeType) -> Iterator[str]:
    """Return the names that a function's code uses, functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
