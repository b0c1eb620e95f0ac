"""The tutorials' files and commands work as they stand there, one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hadamard.core import plugins
from hadamard.core.run import Run
from hadamard.report.data.runs import load
from tests.docs.test_commands import commands
from tests.support.commands import Command
from tests.support.pages import blocks, name
from tests.support.paths import ROOT
from tests.support.plugins import NAMES, TUTORIALS, files_of


def test_there_is_one_for_each_kind_of_plugin() -> None:
    names = [file for page in TUTORIALS for file in files_of(page)]
    assert sorted(names) == sorted(f"{name}.py" for name in NAMES)
    after = (ROOT / "mkdocs.yml").read_text().partition("Quickstart: quickstart.md\n")[2]
    assert after.startswith("  - Tutorials:\n      - Your own algorithm: tutorials/algorithm.md\n")


@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_the_commands_of_a_tutorial_work_in_their_order(
    page: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ((file, text),) = files_of(page).items()
    (tmp_path / file).write_text(text)
    lines = [words[1:] for words in commands(page) if words[:1] == ["hadamard"] and words[2:]]
    shown = [shlex.join(words) for words in lines]
    assert any(words.startswith("train --resume") for words in shown)
    assert any(words.startswith("report") for words in shown)
    resumed = []
    for words in lines:
        if words[0] == "play":  # which needs another package
            continue
        result = command(*words)
        assert result.code == 0, (words, result.err)
        if "--run-dir" in words:
            run = Run(words[words.index("--run-dir") + 1])
            assert [entry["file"] for entry in run.config["plugins"].values()] == [file]
        if "--resume" in words:
            resumed.append(run.done)
    (done,) = resumed
    assert done is not None
    assert done["steps"] == run.config["spec"]["train"]["steps"] >= 1_500
    runs = load(["runs"])
    assert all(run.finished for run in runs)
    assert any(file in str(run.plugins) for run in runs)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    # The page on Python runs, too, once the file is there.
    with plugins.named([]):
        for language, code in blocks(page):
            if language == "python" and not re.match(r"# \w+\.py\n", code):
                exec(compile(code, str(page), "exec"), {"__name__": "tutorial"})
                assert Run("runs/python").done


def test_a_resumed_grid_world_equals_one_that_was_not_stopped(
    tmp_path: Path, command: Command
) -> None:
    """The environment's state is exact, in its process and in workers."""
    (page,) = [page for page in TUTORIALS if page.stem == "environment"]
    path = tmp_path / "grid_world.py"
    path.write_text(files_of(page)[path.name])
    words = ["train", "pqn", "--plugin", path, "--env", "Grid_World/small", "--net.width", "16"]
    words += ["--algo.num-envs", "4", "--algo.rollout-steps", "8", "--train.steps", "512"]
    words += ["--train.log-every", "64", "--train.health-every", "0", "--train.no-tensorboard"]
    assert command(*words, "--run-dir", tmp_path / "whole").code == 0
    stopped = tmp_path / "stopped"
    more = ["--train.env-workers", "2", "--train.until", "256", "--run-dir", stopped]
    assert command(*words, *more).code == 0
    again = command("train", "--resume", stopped, "--until", "0", "--plugin", path)
    assert again.code == 0, again.err
    for stream in ("train", "episodes", "eval"):
        texts = [(tmp_path / run / f"{stream}.jsonl").read_text() for run in ("whole", "stopped")]
        assert texts[0] == texts[1]
        assert texts[0]
