"""What the pages of the algorithms say of defaults, suites and functions, against the code."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import hadamard
from hadamard.core.config import RunSpec, flattened, to_dict
from hadamard.training.start import default_spec
from tests.support.pages import DOCS, table

PAGES = sorted((DOCS / "algos").glob("*.md"))
SOURCE = Path(hadamard.__file__).parent / "algos"
SUITES = {
    "discrete": ("atari", "minatar", "gym"),
    "continuous": ("humanoid", "dmc", "dmc-state", "gym"),
}
WORDS = {"yes": True, "no": False, "none": None}


def value(text: str) -> Any:
    """A cell's number, or the value that its word stands for."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return WORDS.get(text, text)


def field(setting: str) -> str:
    """The setting's name in the configuration."""
    return setting.removeprefix("--").replace("-", "_")


def test_every_algorithm_has_a_page() -> None:
    algorithms = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert {page.stem for page in PAGES} == algorithms


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_stated_defaults_are_those_of_the_code(page: Path) -> None:
    module = importlib.import_module(f"hadamard.algos.{page.stem}")
    spec: RunSpec[Any] = RunSpec(algo=module.Config(), net=module.NET)
    settings = flattened(to_dict(spec))
    shown = {field(row[0]): row[1] for row in table(page.read_text(), "setting")}
    suites = {field(row[1]) for row in table(page.read_text(), "suite")}
    own = {f"algo.{entry.name}" for entry in dataclasses.fields(module.Config)}
    assert own <= set(shown)
    for name, text in shown.items():
        # "none" is a value, except of the norm, where it is a name.
        stated = text if name == "net.norm" else value(text)
        assert stated == settings[name], name
    assert "train.steps" in shown or "train.steps" in suites


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_stated_overrides_are_those_of_the_suites(page: Path) -> None:
    module = importlib.import_module(f"hadamard.algos.{page.stem}")
    settings = flattened(to_dict(RunSpec(algo=module.Config(), net=module.NET)))
    suites = {suite for kind in SUITES if kind in module.ACTIONS for suite in SUITES[kind]}
    rows = table(page.read_text(), "suite")
    assert {row[0] for row in rows} <= {"all", *suites}
    for suite in suites:
        adapted = flattened(to_dict(default_spec(page.stem, f"{suite}/any")))
        changed = {
            name: adapted[name]
            for name in settings
            if name != "env" and adapted[name] != settings[name]
        }
        stated = {field(name): value(text) for where, name, text in rows if where in ("all", suite)}
        assert stated == changed, suite


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_functions_to_change_are_there(page: Path) -> None:
    code = (SOURCE / f"{page.stem}.py").read_text()
    *rows, _setting = table(page.read_text(), "to change")
    named = re.findall(r"\w+", " ".join(row[1] for row in rows))
    assert len(named) >= 4
    for name in named:
        assert f"def {name}(" in code, name
