"""The fields of an untrusted JSON object: every value is checked as it is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hadamard.report.data.numbers import LARGEST, are_numbers, is_count, is_number
from hadamard.report.data.series import FloatArray, IntArray

Value = TypeVar("Value")


class WrongField(ValueError):
    """A value is missing or of another type than it must be; the message names it."""


class Fields:
    """An object's fields; ``name`` is what messages call the object."""

    def __init__(self, value: object, name: str = "") -> None:
        if not isinstance(value, dict):
            raise _wrong(name or "the whole", value, "an object")
        self.values: dict[str, Any] = value
        self._prefix = f"{name}." if name else ""

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str) -> str:
        """Return a text."""
        return self._checked(key, "a text", str, lambda value: isinstance(value, str))

    def flag(self, key: str) -> bool:
        """Return true or false."""
        return self._checked(key, "true or false", bool, lambda value: isinstance(value, bool))

    def integer(self, key: str, least: int = 0) -> int:
        """Return an integer that is not below ``least``."""
        return self._checked(key, f"a whole number from {least}", int,
                             lambda value: is_count(value) and value >= least)  # fmt: skip

    def number(self, key: str) -> float:
        """Return a number; NaN where it is null or missing."""
        if self.values.get(key) is None:
            return math.nan
        return self._checked(key, "a finite number", float, is_number)

    def fields(self, key: str) -> Fields:
        """Return an object."""
        return Fields(self.values.get(key), f"{self._prefix}{key}")

    def objects(self, key: str) -> list[Fields]:
        """Return a list of objects."""
        return [
            Fields(value, f"{self._prefix}{key}[{index}]")
            for index, value in enumerate(self._list(key))
        ]

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
        return self._checked_list(key, "a text", lambda value: isinstance(value, str))

    def flags(self, key: str) -> list[bool]:
        """Return a list of true and false."""
        return self._checked_list(key, "true or false", lambda value: isinstance(value, bool))

    def numbers(self, key: str) -> FloatArray:
        """Return a list of numbers, NaN where one is null."""
        values = self._list(key)
        if not are_numbers(values):
            self._checked_list(key, "a finite number", lambda v: v is None or is_number(v))
        return np.array(values, dtype=np.float64)  # numpy turns None into NaN

    def integers(self, key: str) -> IntArray:
        """Return a list of integers from 0."""
        values = self._list(key)
        if not set(map(type, values)) <= {int} or not all(0 <= v <= LARGEST for v in values):
            self._checked_list(key, "a whole number", is_count)
        return np.array(values, dtype=np.int64)

    def steps(self, key: str) -> IntArray:
        """Return a list of steps: integers, none of them below the one before."""
        values = self.integers(key)
        if (np.diff(values) < 0).any():
            raise WrongField(f"{self._prefix}{key} goes back: steps must rise")
        return values

    def _checked(
        self,
        key: str,
        expected: str,
        convert: Callable[[Any], Value],
        accepts: Callable[[Any], bool],
    ) -> Value:
        value = self.values.get(key)
        if not accepts(value):
            raise _wrong(self._prefix + key, value, expected)
        return convert(value)

    def _list(self, key: str) -> list[Any]:
        values = self.values.get(key)
        if not isinstance(values, list):
            raise _wrong(self._prefix + key, values, "a list")
        return values

    def _checked_list(self, key: str, expected: str, accepts: Callable[[Any], bool]) -> list[Any]:
        values = self._list(key)
        for index, value in enumerate(values):
            if not accepts(value):
                raise _wrong(f"{self._prefix}{key}[{index}]", value, expected)
        return values


def _wrong(name: str, value: object, expected: str) -> WrongField:
    shown = "missing" if value is None else repr(value)
    return WrongField(f"{name} is {shown[:60]}, not {expected}")
