"""Checks of settings, with errors that name the option: ``require.positive(self, "steps")``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from hadamard.core.typed import LARGEST

if TYPE_CHECKING:
    from hadamard.core.config import TrainSpec


def representable(config: Any, section: str = "", inline: Collection[str] = ()) -> None:
    """Refuse numbers that are not finite or do not fit into 64 bits, and what is no text.

    Sections are checked too.

    ``inline`` names sections whose settings have no prefix on the command line.
    """
    if isinstance(config, Mapping):
        values = dict(config)
    else:
        values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    for name, value in values.items():
        if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
            nested = section if name in inline or name == "remedies" else name
            representable(value, nested, inline)
            continue
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{_flag(section, name)} must be a finite number, got {number}")
            if isinstance(number, str) and not _is_text(number):
                raise ValueError(f"{_flag(section, name)} must be text in UTF-8, got {number!a}")
            if isinstance(number, int) and abs(number) > LARGEST:
                raise ValueError(
                    f"{_flag(section, name)} must be less than 2**63 in size, got a number of "
                    f"{len(str(abs(number)))} digits"
                )


def _is_text(value: str) -> bool:
    """Tell whether a text can be written in UTF-8; half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def positive(config: Any, *names: str, section: str = "algo") -> None:
    """Refuse settings below 1; ``section`` is what precedes their names on the command line."""
    for name, value in _given(config, names):
        if value < 1:
            raise ValueError(f"{_flag(section, name)} must be at least 1, got {value}")


def not_negative(config: Any, *names: str, section: str = "algo") -> None:
    """Refuse settings below 0."""
    for name, value in _given(config, names):
        if value < 0:
            raise ValueError(f"{_flag(section, name)} must not be negative, got {value}")


def at_most(config: Any, most: int, *names: str, section: str = "algo") -> None:
    """Refuse settings with which a step takes longer than anybody waits, or cannot be made."""
    for name, value in _given(config, names):
        if value > most:
            raise ValueError(f"{_flag(section, name)} must be at most {most:,}, got {value}")


def above_zero(config: Any, *names: str, section: str = "algo") -> None:
    """Refuse settings that are not above 0, NaN included."""
    for name, value in _given(config, names):
        if not value > 0:
            raise ValueError(f"{_flag(section, name)} must be above 0, got {value:g}")


def fraction(config: Any, *names: str, section: str = "algo") -> None:
    """Refuse settings outside of [0, 1]."""
    for name, value in _given(config, names):
        if not 0 <= value <= 1:
            raise ValueError(f"{_flag(section, name)} must lie in [0, 1], got {value:g}")


MOST_SEEDS = 10_000
"""Seeds that one command trains at most."""


def seeds(count: int) -> None:
    """Refuse a number of seeds that is not positive, or of which not even a list can be made."""
    if not 1 <= count <= MOST_SEEDS:
        raise ValueError(
            f"--seeds must be at least 1, got {count}"
            if count < 1
            else f"--seeds {count} asks for too many runs: {MOST_SEEDS:,} seeds are the most"
        )


def learning(config: Any, name: str, train: TrainSpec) -> None:
    """Refuse a start of learning, in steps, that training does not reach."""
    not_negative(config, name)
    start = getattr(config, name)
    if train.steps <= start:
        raise ValueError(
            f"--train.steps {train.steps} ends before anything is learned: {_flag('algo', name)} "
            f"is {start}. Raise the first or lower the second"
        )


def _given(config: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return settings and their values, without those that are None (chosen automatically)."""
    values = [(name, getattr(config, name)) for name in names]
    return [(name, value) for name, value in values if value is not None]


def _flag(section: str, name: str) -> str:
    return f"--{section}{'.' if section else ''}{name.replace('_', '-')}"
