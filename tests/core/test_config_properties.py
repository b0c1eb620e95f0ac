"""Any settings come back from JSON and from the command line, and wrong types are refused."""

from __future__ import annotations

import json
import types
import typing
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadamard.cli.train import spec_from
from hadamard.core import config, discover, typed
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.typed import WrongType

WORDS = st.text("abcxyz019-", min_size=1, max_size=8).filter(lambda word: word[0] != "-")
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, typed.LARGEST),
    float: FLOATS,
    bool: st.booleans(),
    str: WORDS,
    type(None): st.none(),
}
ANOTHER_TYPE = {"a": [None]}
"""No setting is an object of lists."""


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), min_size=1, max_size=4).map(tuple)
    return OF_TYPE[hint]


def config_class(algorithm: str) -> Any:
    return discover.find(discover.ALGORITHMS, algorithm, "algorithm").Config


def hints(algorithm: str) -> dict[str, Any]:
    """The types of all settings by their dotted names."""
    sections = {"algo": config_class(algorithm), "net": NetSpec, "train": TrainSpec}
    flat = {"seed": int, "device": str, "run_dir": str | None}
    for section, kind in sections.items():
        flat |= {f"{section}.{name}": hint for name, hint in typed.fields(kind).items()}
    return flat


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An algorithm and some of its settings."""
    algorithm = draw(st.sampled_from(discover.names(discover.ALGORITHMS)))
    known = hints(algorithm)
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=8, unique=True))
    return algorithm, {name: draw(values_of(known[name])) for name in names}


def spec_of(algorithm: str) -> RunSpec[Any]:
    return RunSpec(algo=config_class(algorithm)())


def with_algo(algorithm: str, values: dict[str, Any]) -> RunSpec[Any]:
    """Read settings as a resumed run does: the algorithm's own with its class."""
    own = config.from_dict(config_class(algorithm), values["algo"], "config.algo")
    rest = config.from_dict(RunSpec, {**values, "algo": None})
    return config.overridden(rest, {"algo": own})  # type: ignore[no-any-return]


@given(changes())
def test_changed_settings_are_those_alone_and_come_back_from_json(
    case: tuple[str, dict[str, Any]],
) -> None:
    algorithm, changed = case
    spec = config.overridden(spec_of(algorithm), changed)
    before = config.flattened(config.to_dict(spec_of(algorithm)))
    assert config.flattened(config.to_dict(spec)) == {**before, **changed}
    values = json.loads(json.dumps(config.to_dict(spec)))
    assert with_algo(algorithm, values) == spec


@given(changes(), st.data())
def test_a_value_of_another_type_is_refused_by_its_name(
    case: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    algorithm, changed = case
    values = config.to_dict(config.overridden(spec_of(algorithm), changed))
    name = data.draw(st.sampled_from(sorted(hints(algorithm))))
    section, dot, setting = name.partition(".")
    place = values[section] if dot else values
    place[setting if dot else section] = ANOTHER_TYPE
    with pytest.raises(WrongType, match=rf"config\.{name} must be"):
        with_algo(algorithm, values)


@given(changes(), st.sampled_from(["", "algo", "net", "train"]), WORDS)
def test_an_unknown_setting_is_refused_by_its_name(
    case: tuple[str, dict[str, Any]], section: str, word: str
) -> None:
    algorithm, changed = case
    spec = config.overridden(spec_of(algorithm), changed)
    values = config.to_dict(spec)
    unknown = f"{word}-"  # no name of a field has a dash
    (values[section] if section else values)[unknown] = 1
    with pytest.raises(ValueError, match=f"fields this version does not know: {unknown}"):
        with_algo(algorithm, values)
    name = f"{section}.{unknown}" if section else unknown
    with pytest.raises(ValueError, match=f"unknown setting '{name}'"):
        config.overridden(spec, {name: 1})


def words_of(name: str, value: Any) -> list[str]:
    """A setting as it is typed."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        section, _, last = option.rpartition(".")
        return [f"--{option}" if value else f"--{section}.no-{last}"]
    items = value if isinstance(value, tuple) else (value,)
    return [f"--{option}", *map(str, items)]


@settings(max_examples=25)
@given(changes())
def test_typed_settings_are_read_as_they_were_meant(case: tuple[str, dict[str, Any]]) -> None:
    algorithm, changed = case
    words = [word for name, value in changed.items() for word in words_of(name, value)]
    default = config.to_dict(spec_from(algorithm, []))
    typed_spec = config.to_dict(spec_from(algorithm, words))
    assert config.flattened(typed_spec) == {**config.flattened(default), **changed}
