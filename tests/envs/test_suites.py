"""Suites and tasks are found by name; missing packages are named."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys

import pytest

from hadamard import envs as suites
from hadamard.core import builtin
from hadamard.envs import MissingExtra, make, minatar


def test_discovery() -> None:
    descriptions = suites.suites()
    assert {"atari", "minatar", "probe"} <= descriptions.keys()
    assert descriptions.keys().isdisjoint({"workers", "common", "atari-game", "humanoid-tasks"})
    assert all(description.endswith(".") for description in descriptions.values())
    # Upper and lower case do not matter.
    assert make("Probe/CONSTANT", 0, 1).num_envs == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breakout", "'suite/task'.*got 'breakout'"),
        ("minatar/", "'suite/task'"),
        ("minatr/breakout", "unknown suite 'minatr'; did you mean 'minatar'.*Known:.*probe"),
        ("zzz/breakout", r"unknown suite 'zzz'\. Known:"),
        ("minatar/brakout", "no task 'brakout'; did you mean 'breakout'.*hadamard envs"),
        ("atari/mspackman", "did you mean 'MsPacman'"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, 0, 1)


def test_a_suites_own_make_refuses_unknown_tasks() -> None:
    with pytest.raises(ValueError, match="minatar has no task 'pong'; it has: asterix"):
        minatar.make("pong", 0, 1)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "minatar" else find_spec(name, package),
    )
    assert suites.missing("minatar") == ("minatar",)
    assert suites.missing("probe") == ()
    with pytest.raises(MissingExtra, match=r"pip install 'hadamard-rl\[minatar\]'"):
        make("minatar/breakout", 0, 1)
    with pytest.raises(ValueError, match="no task"):
        make("minatar/pong", 0, 1)


def test_making_a_suite_imports_no_other() -> None:
    code = (
        "import sys; from hadamard.envs import make, suites; suites(); make('probe/both', 0, 1);"
        "print([m for m in ('minatar', 'ale_py', 'hadamard.envs.atari') if m in sys.modules])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "[]"


def test_tasks_are_listed_with_nothing_installed() -> None:
    packages = ("minatar", "ale_py", "mujoco", "dm_control", "gymnasium", "cv2")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages}));"
        "from hadamard.envs import suites, tasks;"
        "print(*(len(tasks(suite)) > 4 for suite in suites()))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert set(completed.stdout.split()) == {"True"}


def test_the_files_of_the_suites_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, parsed = suites.suites(), []
    with monkeypatch.context() as patch:
        patch.setattr(
            builtin.ast, "parse", lambda *words: parsed.append(words) or ast.Module([], [])
        )
        again = suites.suites()
    assert (again, parsed) == (before, [])
