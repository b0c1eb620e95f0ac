"""The tests that the page of promises names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.mutants import GROUPS
from tests.support.pages import DOCS, section, table
from tests.support.paths import ROOT

PAGE = DOCS / "reliability.md"


def defined_tests(path: Path) -> set[str]:
    """The tests that a file defines."""
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text()))
    assert len(named) > 20
    for file, test in named:
        assert test in defined_tests(ROOT / "tests" / file), f"{file}::{test}"


def test_every_property_names_a_test_that_draws_its_examples() -> None:
    rows = table(section(PAGE, "Properties"), "subject")
    assert len({subject for subject, *_ in rows if subject}) == 9
    for *_, named in rows:
        file, _, test = named.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text())
        (found,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == test]
        assert any(ast.unparse(mark).startswith("given(") for mark in found.decorator_list), named


def test_the_faults_add_up_and_are_of_code_that_is_there() -> None:
    text = section(PAGE, "Mutation")
    *modules, total = table(text, "module")
    assert [module for module, *_ in modules] == list(GROUPS)
    sums = [sum(int(row[column]) for row in modules) for column in (1, 2)]
    assert total == ["all", *map(str, sums), f"{100 * sums[1] / sums[0]:.1f} %"]
    for _, faults, noticed, share in modules:
        assert share == f"{100 * int(noticed) / int(faults):.1f} %"
    rows = table(text, "file")
    assert f"These {sums[0] - sums[1]} are left" in text
    for file, code, *_ in rows:
        assert code in (ROOT / "src" / "hadamard" / file).read_text(), (file, code)


def test_every_promise_names_a_test() -> None:
    promises = section(PAGE, "What is promised").split("\n- ")[1:]
    assert len(promises) > 8
    for promise in promises:
        assert re.search(r"`[\w/]+\.py::test_\w+`", promise), promise


def test_every_scenario_names_a_test_or_says_that_there_is_none() -> None:
    rows = table(section(PAGE, "The scenarios"), "scenario")
    assert len([scenario for scenario, _ in rows if scenario]) == 20
    for scenario, test in rows:
        assert re.fullmatch(r"[\w/]+\.py::test_\w+", test) or "none yet" in test, scenario
