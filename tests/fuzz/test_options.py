"""No option of any command ends in a traceback or a hang, and a refusal says what is refused."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from hadamard.cli import algos
from tests.fuzz import isolated, judge, options, runs
from tests.fuzz.isolated import DIED, HUNG, TRACEBACK, Case

COUNT, SEED = 2_000, 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def cases(folder: Path) -> list[Case]:
    return options.cases(runs.write(folder))


def test_every_command_and_every_setting_is_tried() -> None:
    bases = options.bases()
    assert {base.words[0] for base in bases} == set(options.commands())
    found = {(base.words[0], option) for base in bases for option in options.options_of(base)}
    assert len(found) > 150
    for command, option in (
        ("train", "--train.steps"),
        ("train", "--algo.learning-rate"),
        ("train", "--net.width"),
        ("train", "--redo.tau"),
        ("train", "--until"),
        ("sweep", "--slurm.minutes"),
        ("pack", "-o"),
        ("report", "--title"),
    ):
        assert (command, option) in found


def test_the_commands_without_hostile_values_are_accepted(cases: list[Case], folder: Path) -> None:
    plain = [case for case in cases if case.name.endswith(": as it is")]
    assert len(plain) == len(options.bases())
    refused = {base.words: base.refused for base in options.bases() if base.refused}
    for case, end in isolated.run(plain, folder):
        if case.words in refused:
            assert refused[case.words][0] in end.err, case.name
        else:
            assert end.code in judge.WELL, (case.name, end)


def test_hostile_values_are_refused_by_name(cases: list[Case], folder: Path) -> None:
    chosen = random.Random(SEED).sample(cases, COUNT)
    assert_no_faults(chosen, folder)


def assert_no_faults(chosen: list[Case], folder: Path) -> None:
    ended = list(isolated.run(chosen, folder))
    assert len(ended) == len(chosen)
    faults = [
        f"{case.name}: {fault}: {judge.plain(end.err)[-300:]}"
        for case, end in ended
        if (fault := judge.fault(case, end)) is not None
    ]
    assert faults == []


def test_bad_ends_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def end_badly(words: list[str]) -> Any:
        if words == ["fail"]:
            raise TypeError("of the program, not of its user")
        if words == ["die"]:
            os._exit(1)
        while words == ["hang"]:
            pass
        if words == ["write"]:
            Path("/outside").write_text("")
        return 9 if words == ["odd"] else 2

    monkeypatch.setattr(algos, "main", end_badly)
    words = ("fail", "die", "hang", "odd", "silent", "write")
    cases = [Case(word, ("algos", word)) for word in words]
    ends = {case.name: end for case, end in isolated.run(cases, tmp_path, hangs=5.0)}
    assert [ends[word].code for word in words] == [TRACEBACK, DIED, HUNG, 9, 2, 1]
    assert "Read-only file system: '/outside'" in ends["write"].err
    faults = [judge.fault(case, ends[case.name]) for case in cases]
    assert None not in faults[:-1]


def test_a_refusal_must_name_what_it_refuses() -> None:
    case = Case("train", (), names=(("--train.steps", "seven"),))
    for message, fine in (
        ("--train.steps must be a number", True),
        ("\u2502 got 'seven' \u2502", True),
        ("--train.steps-per-game is wrong", True),
        ("seventeen is wrong", False),
        ("something is wrong", False),
        (" ", False),
    ):
        fault = judge.fault(case, isolated.End(2, err=message))
        assert (fault is None) == fine, message
    assert judge.fault(case, isolated.End(2, err="seven", changed=True)) is not None
    assert judge.fault(case, isolated.End(0, out="Traceback (most recent call last)")) is not None
