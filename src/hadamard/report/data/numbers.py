"""Numbers from untrusted files: which are usable, and how they are shortened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np

LARGEST = 2**53
"""The largest integer that a float holds exactly; steps and counts are far smaller."""
_MAGNITUDE = 1e300
_DIGITS = 7
_LONGEST_INTEGER = 10**_DIGITS


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a finite number, and not a bool.

    Examples:
        >>> is_number(2), is_number(2.5), is_number(True), is_number("2"), is_number(float("nan"))
        (True, True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _MAGNITUDE and math.isfinite(value)


def is_count(value: object) -> bool:
    """Tell whether a value is an integer from 0 to `LARGEST`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def are_numbers(values: list[Any]) -> bool:
    """Tell whether all values are finite numbers or None; faster than testing each."""
    kinds = set(map(type, values))
    if not kinds <= {int, float, type(None)}:
        return False
    if type(None) in kinds:
        values = [value for value in values if value is not None]
    if not values:
        return True
    # Comparisons with NaN may go either way, but a NaN makes the sum NaN.
    within = min(values) >= -_MAGNITUDE and max(values) <= _MAGNITUDE
    return within and math.isfinite(sum(values))


def rounded(value: float) -> float:
    """Return a number with seven digits."""
    return float(f"{value:.{_DIGITS}g}")


def finite_or_none(value: float) -> float | None:
    """Return a number unchanged; None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def shortened(values: Iterable[Any] | Sequence[Any]) -> list[float | int | None]:
    """Return numbers with at most seven digits, and None for what is not a finite number."""
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if are_numbers(plain):
        return [None if value is None else _shortened(value) for value in plain]
    return [_shortened(value) if is_number(value) else None for value in plain]


def _shortened(value: float) -> float | int:
    if isinstance(value, int) and value < _LONGEST_INTEGER:
        return value
    short = rounded(value)
    return int(short) if short.is_integer() and abs(short) < _LONGEST_INTEGER else short
