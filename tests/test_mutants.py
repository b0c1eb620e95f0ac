"""The faults that are put into the code: what they are, and which tests should notice them."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.support.mutants import GROUPS, Mutant, file_mutants, in_order, relevant_tests, sample
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("code", "faults"),
    [
        ("a < 1", ["(a <= 1)", "(a > 1)", "a < (2)", "a < (0)"]),
        ("a == b", ["(a != b)"]),
        ("a is None and b in c", ["(a is None or b in c)", "(a is not None) and b in c",
                                  "a is None and (b not in c)"]),
        ("a + b * c", ["(a - b * c)", "a + (b / c)"]),
        ("'a' + b", []),
        ("f'{a + 1}'", []),
        ("not a", ["(a)"]),
        ("True", ["(False)"]),
        ("0.5", ["(1.5)", "(-0.5)"]),
        ("a if b else c", ["(a if not b else c)"]),
        ("a[b:c]", ["(a[:c])", "(a[b:])"]),
        ("x = f(a, b=c)", ["x = (f(a))"]),
        ("f(a)", ["pass"]),
        ("a.b = c", ["pass"]),
        ("a += b", ["pass"]),
        ("a: int = b", []),
        ("'''Text.'''", []),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("def f(a: int | None = b) -> int | None:\n    raise a", ["def f(a: int | None = b) -> int "
                                                                "| None:\n    pass"]),
    ],
)  # fmt: skip
def test_each_fault_is_one_small_change(code: str, faults: list[str]) -> None:
    source = f"é = 'é'\n{code}\n".encode()
    changed = [m.applied(source).decode() for m in file_mutants("group", "path", source)]
    assert sorted(changed) == sorted(f"é = 'é'\n{fault}\n" for fault in faults)


def test_a_sample_is_drawn_evenly_and_again_the_same() -> None:
    mutants = sample(ROOT, 60, seed=3)
    assert mutants == sample(ROOT, 60, seed=3) != sample(ROOT, 60, seed=4)
    assert len({mutant.name for mutant in mutants}) == 60
    assert Counter(mutant.group for mutant in mutants) == dict.fromkeys(GROUPS, 12)
    for mutant in mutants:
        source = (ROOT / mutant.path).read_bytes()
        assert source[mutant.start : mutant.end].decode() == mutant.before
        changed = ast.parse(mutant.applied(source))
        assert ast.dump(changed) != ast.dump(ast.parse(source))


def test_the_tests_of_a_fault_are_those_that_run_its_lines() -> None:
    path = "src/hadamard/a/b.py"
    lines = {"1": ["", "slow"], "4": ["quick"], "5": ["quick", "slow"], "9": ["other"]}
    namesake = "tests/a/test_b.py::test_of_a_constant"
    seconds = dict.fromkeys(["quick", "slow", "other", namesake, "elsewhere"], 1.0)
    known = {"covering": {path: lines}, "seconds": seconds}

    def tests_at(first: int, last: int, path: str = path) -> set[str]:
        return relevant_tests(Mutant("group", path, first, (first, last), 0, 1, "a", "b"), known)

    assert tests_at(4, 4) == {"quick"}
    assert tests_at(4, 5) == {"quick", "slow"}
    # Lines that run on import, and lines that no test runs.
    assert tests_at(1, 1) == tests_at(7, 7) == {"quick", "slow", "other", namesake}
    assert tests_at(4, 4, "src/hadamard/a/b/__init__.py") == {namesake}
    assert tests_at(4, 4, "src/hadamard/c.py") == set()


def test_fast_tests_come_first_and_a_shared_setup_is_made_once() -> None:
    seconds = {"a::1": 3.0, "a::2": 0.1, "b::1": 1.0, "b::2": 0.5, "b::3": 0.2}
    known = {"seconds": seconds, "slow_setups": ["a"]}
    assert in_order(list(seconds)[::-1], known, 60) == ["b::3", "b::2", "b::1", "a::1", "a::2"]
    assert in_order(["b::1", "b::3", "a::2"], known, 1.0) == ["a::2", "b::3"]
