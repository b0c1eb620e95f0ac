"""A JSON object of a file that nobody vouches for: every value is checked as it is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import numpy as np

from hadamard.report.data.series import FloatArray, IntArray

Kind = TypeVar("Kind")
LARGEST = 2**53
"""The largest whole number that a float holds exactly; no step or count comes near it."""


class WrongField(ValueError):
    """A value is missing or of another type than it must be; the message names it."""


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a finite number, and no truth value.

    Examples:
        >>> is_number(2), is_number(2.5), is_number(True), is_number("2"), is_number(float("nan"))
        (True, True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= 1e300 and math.isfinite(value)


def all_numbers(values: list[Any]) -> bool:
    """Tell whether all values are finite numbers or None, faster than one by one."""
    kinds = set(map(type, values))
    if not kinds <= {int, float, type(None)}:
        return False
    if type(None) in kinds:
        values = [value for value in values if value is not None]
    # Of a NaN no comparison is true, and the sum is NaN.
    return not values or (min(values) >= -1e300 and max(values) <= 1e300 and sum(values) * 0 == 0)


def is_whole(value: object) -> bool:
    """Tell whether a value is a whole number from 0 to `LARGEST`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


class Fields:
    """An object's fields; ``name`` is what messages call the object."""

    def __init__(self, value: object, name: str = "") -> None:
        if not isinstance(value, dict):
            raise _wrong(name or "the whole", value, "an object")
        self.values: dict[str, Any] = value
        self._before = f"{name}." if name else ""

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str) -> str:
        """Return a text."""
        return self._one(key, "a text", str, lambda value: isinstance(value, str))

    def flag(self, key: str) -> bool:
        """Return true or false."""
        return self._one(key, "true or false", bool, lambda value: isinstance(value, bool))

    def whole(self, key: str, least: int = 0) -> int:
        """Return a whole number that is not below ``least``."""
        return self._one(key, f"a whole number from {least}", int,
                         lambda value: is_whole(value) and value >= least)  # fmt: skip

    def number(self, key: str) -> float:
        """Return a number; NaN where it is null or missing."""
        if self.values.get(key) is None:
            return math.nan
        return self._one(key, "a finite number", float, is_number)

    def fields(self, key: str) -> Fields:
        """Return an object."""
        return Fields(self.values.get(key), f"{self._before}{key}")

    def objects(self, key: str) -> list[Fields]:
        """Return a list of objects."""
        return [
            Fields(value, f"{self._before}{key}[{place}]")
            for place, value in enumerate(self._list(key))
        ]

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
        return self._every(key, "a text", lambda value: isinstance(value, str))

    def flags(self, key: str) -> list[bool]:
        """Return a list of true and false."""
        return self._every(key, "true or false", lambda value: isinstance(value, bool))

    def numbers(self, key: str) -> FloatArray:
        """Return a list of numbers, NaN where one is null."""
        values = self._list(key)
        if not all_numbers(values):
            self._every(key, "a finite number", lambda v: v is None or is_number(v))
        return np.array(values, dtype=np.float64)  # numpy turns None into NaN

    def wholes(self, key: str) -> IntArray:
        """Return a list of whole numbers."""
        values = self._list(key)
        if not set(map(type, values)) <= {int} or not all(0 <= v <= LARGEST for v in values):
            self._every(key, "a whole number", is_whole)
        return np.array(values, dtype=np.int64)

    def rising(self, key: str) -> IntArray:
        """Return a list of whole numbers, none of them below the one before."""
        values = self.wholes(key)
        if (np.diff(values) < 0).any():
            raise WrongField(f"{self._before}{key} goes back: steps must rise")
        return values

    def _one(
        self, key: str, wanted: str, kind: Callable[[Any], Kind], accept: Callable[[Any], bool]
    ) -> Kind:
        value = self.values.get(key)
        if not accept(value):
            raise _wrong(self._before + key, value, wanted)
        return kind(value)

    def _list(self, key: str) -> list[Any]:
        values = self.values.get(key)
        if not isinstance(values, list):
            raise _wrong(self._before + key, values, "a list")
        return values

    def _every(self, key: str, wanted: str, accept: Callable[[Any], bool]) -> list[Any]:
        values = self._list(key)
        for place, value in enumerate(values):
            if not accept(value):
                raise _wrong(f"{self._before}{key}[{place}]", value, wanted)
        return values


def _wrong(name: str, value: object, wanted: str) -> WrongField:
    shown = "missing" if value is None else repr(value)
    return WrongField(f"{name} is {shown[:60]}, not {wanted}")
