"""What the page on Gymnasium's tasks shows, done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hadamard import envs
from hadamard.envs import named_modules
from tests.support.commands import Command
from tests.support.pages import DOCS, blocks

pytestmark = pytest.mark.skipif(bool(envs.missing("gym")), reason="needs the gym extra")


@pytest.fixture(autouse=True)
def tasks_are_forgotten() -> Iterator[None]:
    """Other tests register tasks of these names too."""
    import gymnasium

    yield
    gymnasium.registry.pop("Corridor-v0", None)
    sys.modules.pop("my_tasks", None)


MODULE, FUNCTION = (text for kind, text in blocks(DOCS / "gymnasium.md") if kind == "python")


def test_a_task_in_a_module(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(named_modules.VARIABLE, "")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_tasks.py").write_text(MODULE)
    run = tmp_path / "corridor"
    words = ["--env", "gym/my_tasks:Corridor-v0", "--train.steps", "20000", "--run-dir", run]
    done = command("train", "ppo", *words, "--train.no-tensorboard", "--train.health-every", "0")
    assert done.code == 0, done.err
    assert "score 1.00" in done.out
    pytest.importorskip("PIL")
    film = command("play", run, "--plugin", "my_tasks", "--output", tmp_path / "film.gif")
    assert film.code == 0, film.err
    assert "256x32, 5 a second" in film.out


def test_a_task_of_a_function() -> None:
    exec(compile(FUNCTION, "gymnasium.md", "exec"), {})
