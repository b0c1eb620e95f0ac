"""Checks of settings: what is refused, and the option that the error names."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from hadamard.core import require
from hadamard.core.config import TrainSpec


@dataclasses.dataclass
class Inner:
    wide_number: float = 1.0


@dataclasses.dataclass
class Settings:
    step_size: Any = 0.5
    inner: Inner = dataclasses.field(default_factory=Inner)
    remedies: dict[str, Any] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize(
    ("check", "accepted", "refused"),
    [
        (require.positive, (1, 7), (0, -1)),
        (require.not_negative, (0, 0.0, 2.5), (-1, -1e-9)),
        (require.above_zero, (1e-9, 3), (0, -0.0, -1.0, math.nan)),
        (require.fraction, (0, 0.5, 1), (-1e-9, 1.000001, math.nan)),
    ],
)
def test_limits_belong_to_what_is_accepted(
    check: Any, accepted: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    for value in (*accepted, None):  # None is chosen automatically
        check(Settings(value), "step_size")
    for value in refused:
        with pytest.raises(ValueError, match=r"^--algo\.step-size must .* got "):
            check(Settings(value), "step_size")
        with pytest.raises(ValueError, match=r"^--redo\.step-size must"):
            check(Settings(value), "step_size", section="redo")
        with pytest.raises(ValueError, match=r"^--step-size must"):
            check(Settings(value), "step_size", section="")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(math.inf), "--step-size must be a finite number, got inf"),
        (Settings((1.0, math.nan)), "--step-size must be a finite number, got nan"),
        (Settings(2**63), "--step-size must be less than 2**63 in size, got a number of 19 digits"),
        (Settings(-(10**30)), "--step-size must be less than 2**63 in size, got a number of 31"),
        (Settings(inner=Inner(-math.inf)), "--inner.wide-number must be a finite number, got -inf"),
        (
            Settings(remedies={"redo": {"tau": math.nan}}),
            "--redo.tau must be a finite number, got nan",
        ),
    ],
)
def test_numbers_that_tensors_cannot_hold_are_refused(settings: Settings, message: str) -> None:
    with pytest.raises(ValueError) as error:
        require.representable(settings)
    assert str(error.value).startswith(message)


def test_sections_without_a_prefix_are_named_without_one() -> None:
    require.representable(Settings(2**63 - 1, remedies={"redo": {"tau": 0.1}}))
    with pytest.raises(ValueError, match="^--wide-number must be a finite number"):
        require.representable(Settings(inner=Inner(math.nan)), inline=["inner"])


def test_learning_must_begin_before_training_ends() -> None:
    require.learning(Settings(99), "step_size", TrainSpec(steps=100))
    for start in (100, 200):
        with pytest.raises(
            ValueError, match=f"^--train.steps 100 ends .* --algo.step-size is {start}"
        ):
            require.learning(Settings(start), "step_size", TrainSpec(steps=100))
    with pytest.raises(ValueError, match="^--algo.step-size must not be negative"):
        require.learning(Settings(-1), "step_size", TrainSpec(steps=100))
