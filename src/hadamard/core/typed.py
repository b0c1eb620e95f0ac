"""Check that values read from JSON have the types that were written. Only standard library."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import os
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

LARGEST = 2**63 - 1
"""The largest whole number, as in tensors and arrays."""


class WrongType(ValueError):
    """A value has another type than it must have; the message names the place and the value."""


def checked(value: Any, hint: Any, place: str) -> Any:
    """Return a value if it has the type that a hint states; lists become the tuples it asks for.

    A whole number passes for a float, and true and false are no numbers.

    Args:
        value: What JSON gave.
        hint: A type, with its items' types: ``int``, ``float | None``, ``list[str]``,
            ``dict[str, Any]``, ``Literal["a", "b"]`` and what can be nested from them.
        place: What messages call the value.

    Examples:
        >>> checked([1, 2], tuple[int, ...], "sizes")
        (1, 2)
        >>> checked({"a": "x"}, dict[str, float], "scores")
        Traceback (most recent call last):
        hadamard.core.typed.WrongType: scores.a must be a number, got 'x'
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return value
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, arguments, hint, place)
    if origin is Literal:
        if any(type(value) is type(choice) and value == choice for choice in arguments):
            return value
        raise _wrong(value, hint, place)
    kind = type(None) if hint is None else origin or hint
    if kind in (dict, Mapping):
        return _mapping(value, arguments, hint, place)
    if kind is tuple:
        return _tuple(value, arguments, hint, place)
    if kind in (list, Sequence):
        _require(isinstance(value, list), value, hint, place)
        inner = arguments[0] if arguments else Any
        if inner is Any:
            return value
        return [checked(item, inner, f"{place}[{i}]") for i, item in enumerate(value)]
    _require(_is_plain(value, kind), value, hint, place)
    return value


def counts(value: Any, length: int, place: str) -> list[int]:
    """Return a list of so many whole numbers, none of which is negative.

    Examples:
        >>> counts([3, -1], 2, "ages")
        Traceback (most recent call last):
        hadamard.core.typed.WrongType: ages must be 2 whole numbers from 0 up, got [3, -1]
    """
    numbers: list[int] = checked(value, list[int], place)
    if len(numbers) != length or min(numbers, default=0) < 0:
        raise WrongType(f"{place} must be {length} whole numbers from 0 up, got {shortened(value)}")
    return numbers


def setting(value: Any, hint: Any, place: str) -> Any:
    """Return a setting that a person gave, with the type that a hint states.

    Text is read as the command line reads it; numbers of NumPy and paths are converted.

    Examples:
        >>> setting("3e-4", float, "algo.learning_rate"), setting("none", int | None, "x")
        (0.0003, None)
        >>> setting("fast", float, "algo.learning_rate")
        Traceback (most recent call last):
        hadamard.core.typed.WrongType: algo.learning_rate must be a number, got 'fast'
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif not isinstance(value, bool | int | float) and isinstance(value, numbers.Real):
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    try:
        return checked(value, hint, place)
    except WrongType:
        for candidate in _read(value) if isinstance(value, str) else ():
            try:
                return checked(candidate, hint, place)
            except WrongType:
                continue
        raise


def _read(text: str) -> list[Any]:
    """Return the values that a text may stand for."""
    words = {"true": True, "false": False, "none": None, "null": None}
    values: list[Any] = [words[text.lower()]] if text.lower() in words else []
    for kind in (int, float):
        try:
            values.append(kind(text))
        except ValueError:
            continue
    return values


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, float) or _is_whole(value)
    if kind is int:
        return _is_whole(value)
    if isinstance(kind, type):
        return isinstance(value, kind)
    return True  # a type variable


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


def _one_of(value: Any, choices: tuple[Any, ...], hint: Any, place: str) -> Any:
    failures = []
    for choice in choices:
        try:
            return checked(value, choice, place)
        except WrongType as error:
            failures.append(error)
    # Of a container the inner failure says more.
    inner = [error for error in failures if not str(error).startswith(f"{place} must")]
    raise inner[0] if inner else _wrong(value, hint, place)


def _mapping(value: Any, arguments: tuple[Any, ...], hint: Any, place: str) -> Any:
    _require(isinstance(value, dict), value, hint, place)
    inner = arguments[1] if arguments else Any
    if inner is Any:
        return value
    return {key: checked(item, inner, f"{place}.{key}") for key, item in value.items()}


def _tuple(value: Any, arguments: tuple[Any, ...], hint: Any, place: str) -> Any:
    _require(isinstance(value, list | tuple), value, hint, place)
    if not arguments:
        return tuple(value)
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    _require(len(value) == len(arguments), value, hint, place)
    pairs = zip(value, arguments, strict=True)
    return tuple(checked(item, inner, f"{place}[{i}]") for i, (item, inner) in enumerate(pairs))


def _require(condition: bool, value: Any, hint: Any, place: str) -> None:
    if not condition:
        raise _wrong(value, hint, place)


def _wrong(value: Any, hint: Any, place: str) -> WrongType:
    return WrongType(f"{place} must be {_words(hint)}, got {shortened(value)}")


def shortened(value: Any, length: int = 60) -> str:
    """Return a value as Python writes it, cut where it is long."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict | list) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)}"
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[:length]}..."


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    Mapping: "an object",
    list: "a list",
    Sequence: "a list",
    tuple: "a list",
    type(None): "null",
}


def _words(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(choice) for choice in arguments)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in arguments)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)}"
    kind = type(None) if hint is None else origin or hint
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


@functools.cache
def fields(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
