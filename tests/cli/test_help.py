"""The help texts explain every setting."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from hadamard.core import discover
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from tests.support.commands import Command

ALGORITHMS = discover.names("hadamard.algos")


def fields(kind: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flag and explanation of each plain field of a settings class."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, words in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(words, ast.Expr):
            assert isinstance(field.target, ast.Name)
            flag = field.target.id.replace("_", "-")
            yield f"--{prefix}{flag}", ast.literal_eval(words.value)


SHARED = [
    *(pair for pair in fields(RunSpec) if pair[0] not in ("--algo", "--remedies")),
    *fields(NetSpec, "net."),
    *fields(TrainSpec, "train."),
]


def test_every_field_is_documented() -> None:
    for kind in (NetSpec, TrainSpec):
        assert len(list(fields(kind))) == len(dataclasses.fields(kind))
    for package in (discover.ALGORITHMS, discover.REMEDIES):
        for name in discover.names(package):
            kind = discover.find(package, name, "module").Config
            assert len(list(fields(kind))) == len(dataclasses.fields(kind))
    shared = sum(len(dataclasses.fields(kind)) for kind in (NetSpec, TrainSpec))
    assert len(SHARED) == shared + len(("env", "seed", "run_dir", "device", "init_from", "remedy"))


def assert_explained(text: str, expected: list[tuple[str, str]]) -> None:
    for flag, explanation in expected:
        assert re.search(rf"{re.escape(flag)}[ ,]", text), flag
        assert " ".join(explanation.split()[:3]) in text, flag


def test_help_explains_every_field(command: Command) -> None:
    result = command("train", "--help")
    assert (result.code, result.err) == (0, "")
    assert_explained(result.out, SHARED)
    assert "--resume" in result.out
    assert "--algo.gamma" not in result.out
    for name in ALGORITHMS:
        assert re.search(rf"^  {name} +\w", result.out, re.MULTILINE)
        module = discover.find("hadamard.algos", name, "algorithm")
        own = command("train", name, "--help")
        assert (own.code, own.err) == (0, "")
        assert_explained(own.out, [*SHARED, *fields(module.Config, "algo.")])
    for name in discover.names(discover.REMEDIES):
        assert re.search(rf"^  {name} +\w", result.out, re.MULTILINE)
        module = discover.find(discover.REMEDIES, name, "remedy")
        own = command("train", "dqn", "--remedy", name, "--help")
        section = f"{name}.".replace("_", "-")
        assert_explained(own.out, [*SHARED, *fields(module.Config, section)])
    for name in ("evaluate", "analyze"):
        result = command(name, "--help")
        assert result.code == 0
        assert "The run folder" in result.out
    # Only the full report has intervals.
    plain, _, full = command("report", "--help").out.partition("Any other is a folder")
    assert "one plain page, with the range of the seeds" in plain
    assert "interval" not in plain
    assert "95 % intervals" in full
