"""The command line as a whole: its overview, wrong commands, and the lists it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hadamard.core import discover
from tests.support.commands import Command

ALGORITHMS = discover.names("hadamard.algos")


def test_the_overview_names_every_command(command: Command) -> None:
    for words in ([], ["--help"], ["-h"]):
        result = command(*words)
        assert (result.code, result.err) == (0, "")
        for name in ("train", "evaluate", "analyze", "envs", "algos"):
            assert re.search(rf"^  {name} +\w", result.out, re.MULTILINE)
    assert re.fullmatch(r"hadamard \d+\.\d+\.\d+\n", command("--version").out)


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["tarin"], "unknown command 'tarin'; did you mean 'train'?"),
        (["train", "--env", "minatar/breakout"], "name the algorithm first"),
        (["train", "--resume"], "usage: hadamard train --resume RUN"),
        (["train", "--resume", "nowhere"], "nowhere is not a run"),
        (["train", "--resume", "x", "--seed", "1"], "a run keeps its other settings"),
        (["train", "--resume", "--until", "5"], "usage: hadamard train --resume RUN"),
        (["train", "--resume", "x", "--until"], "--until must be a number of steps, got ''"),
        (["train", "--resume", "x", "--until=1e6"], "a number of steps, got '1e6'"),
        (["evaluate", "nowhere"], "nowhere is not a run"),
        (["analyze", "nowhere"], "nowhere is not a run"),
        (["train", "pqn", "--algo.epochs", "1000000000"], "--algo.epochs must be at most 10,000"),
        (["train", "ppo", "--algo.epochs", "10001"], "--algo.epochs must be at most 10,000, got"),
        (["train", "mrq", "--algo.target-period", "1000000000"], "--algo.target-period must be at"),
        (["train", "mrq", "--algo.value-horizon", "1000000000"], "--algo.value-horizon must be at"),
        (["train", "mrq", "--algo.encoder-horizon", "1001"], "--algo.encoder-horizon must be at"),
        (
            ["train", "simbav2", "--algo.updates-per-step", "10001"],
            "per-step must be at most 10,000",
        ),
        (
            ["train", "dqn", "--train.threads", "1000000000"],
            "--train.threads must be at most 1,024",
        ),
        (["envs", "minatr"], "unknown suite 'minatr'; did you mean 'minatar'"),
        (["algos", ""], "`hadamard algos` takes no options but --plugin, got ''"),
        (["report", ""], "--runs is empty: name a file or a folder"),
        (["report", "x", "--figure="], "--figure is empty: name a file or a folder"),
        (["report", "x", "--title", "\udcff"], r"--title must be text in UTF-8, got '\udcff'"),
    ],
)
def test_a_wrong_command_is_one_line(
    words: list[str], fragment: str, command: Command, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command(*words)
    assert (result.code, result.out) == (2, "")
    assert fragment in result.err
    assert result.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_envs_and_algos_list_what_there_is(command: Command) -> None:
    result = command("envs")
    assert (result.code, result.err) == (0, "")
    for name in ("minatar/breakout", "probe/both", "atari/Pong"):
        assert re.search(rf"\b{name}\b", result.out)
    result = command("algos")
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()] == list(ALGORITHMS)
    for name in ("envs", "algos"):
        assert command(name, "--help").code == 0
        assert command(name, "surplus").code == 2


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m hadamard envs | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("atari: ")
    assert done.stderr == ""
