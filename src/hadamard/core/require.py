"""Checks of settings, with errors that name the option: ``require.positive(self, "steps")``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hadamard.core.config import TrainSpec


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
