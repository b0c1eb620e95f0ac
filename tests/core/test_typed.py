"""Values from JSON have the stated type, or the message names the place and the value."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadamard.core.typed import LARGEST, WrongType, checked, fields, shortened

GOOD: list[tuple[Any, Any, Any]] = [
    (1, int, 1),
    (LARGEST, int, LARGEST),
    (-LARGEST, float, -LARGEST),
    (1, float, 1),
    (1.5, float, 1.5),
    ("a", str, "a"),
    (True, bool, True),
    (None, None, None),
    (None, float | None, None),
    ([1, "a"], list[Any], [1, "a"]),
    ([1, 2], list[int], [1, 2]),
    ([1, 2], Sequence[int], [1, 2]),
    ([1, 2], tuple[int, ...], (1, 2)),
    ([1, "a"], tuple[int, str], (1, "a")),
    ([[1], []], tuple[tuple[int, ...], ...], ((1,), ())),
    ([1], tuple, (1,)),
    ({"a": 1.5}, dict[str, float], {"a": 1.5}),
    ({"a": [1]}, Mapping[str, tuple[int, ...]], {"a": (1,)}),
    ({"a": object}, dict[str, Any], {"a": object}),
    ({}, dict, {}),
    ("b", Literal["a", "b"], "b"),
    ([1], list[int] | int, [1]),
    (3, Any, 3),
    (3, object, 3),
]
BAD: list[tuple[Any, Any, str]] = [
    (True, int, "x must be a whole number, got True"),
    (False, float, "x must be a number, got False"),
    (1.0, int, "x must be a whole number, got 1.0"),
    (LARGEST + 1, int, "x must be a whole number, got a number of 64 bits"),
    (10**400, float, "x must be a number, got a number of 1329 bits"),
    ("1", int, "x must be a whole number, got '1'"),
    (1, str, "x must be a text, got 1"),
    (1, bool, "x must be true or false, got 1"),
    (0, None, "x must be null, got 0"),
    ("a", float | None, "x must be a number or null, got 'a'"),
    ({}, list[int], "x must be a list, got {}"),
    ([], dict[str, int], "x must be an object, got []"),
    ("ab", Sequence[str], "x must be a list, got 'ab'"),
    ("ab", tuple[str, str], "x must be a list of 2, got 'ab'"),
    ([1], tuple[int, str], "x must be a list of 2, got [1]"),
    ([1, "a"], tuple[int, ...], "x[1] must be a whole number, got 'a'"),
    ([0, "a"], list[int], "x[1] must be a whole number, got 'a'"),
    ({"a": {"b": "c"}}, dict[str, dict[str, int]], "x.a.b must be a whole number, got 'c'"),
    ([1, "a"], list[int] | None, "x[1] must be a whole number, got 'a'"),
    ("c", Literal["a", "b"], "x must be 'a' or 'b', got 'c'"),
    (1, Literal[True], "x must be True, got 1"),
]


@pytest.mark.parametrize(("value", "hint", "expected"), GOOD)
def test_a_value_of_its_type_is_returned(value: Any, hint: Any, expected: Any) -> None:
    result = checked(value, hint, "x")
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("value", "hint", "message"), BAD)
def test_another_type_is_refused_by_place(value: Any, hint: Any, message: str) -> None:
    with pytest.raises(WrongType) as refused:
        checked(value, hint, "x")
    assert str(refused.value) == message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values, st.sampled_from([hint for _, hint, _ in GOOD]))
def test_any_value_is_returned_or_refused(value: Any, hint: Any) -> None:
    with contextlib.suppress(WrongType):
        checked(value, hint, "x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 100, "'" + "a" * 59 + "..."),
        (list(range(9)), "a list of 9"),
        (dict.fromkeys(range(9)), "a dict of 9"),
        (list(range(8)), "[0, 1, 2, 3, 4, 5, 6, 7]"),
        (2**63, "a number of 64 bits"),
        (-(10**400), "a number of 1329 bits"),
    ],
)
def test_long_values_are_shortened(value: Any, text: str) -> None:
    assert shortened(value) == text


def test_a_number_too_long_to_be_written_is_described() -> None:
    assert shortened([10**5_000]) == "a list"


def test_the_fields_of_a_dataclass() -> None:
    @dataclass
    class Settings:
        steps: int
        name: str | None = None

    Settings.__annotations__ = {"steps": int, "name": str | None}
    assert fields(Settings) == {"steps": int, "name": str | None}
