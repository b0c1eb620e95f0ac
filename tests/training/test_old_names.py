"""Runs written before settings and parts of checkpoints were renamed are used as any other.

``tests/data/old_names`` holds runs stopped at step 64 of 128, written by the last version with the
old names, and one of them packed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hadamard import cli
from hadamard.core import checkpoint, renamed
from hadamard.core.run import Run
from hadamard.report.data.runs import load
from hadamard.training import start
from tests.support.commands import Command, pack
from tests.support.paths import ROOT

OLD = ROOT / "tests" / "data" / "old_names"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def raw(path: Path) -> str:
    return (path / "config.json").read_text()


def test_they_are_what_this_test_says() -> None:
    assert '"lambda_": 0.9' in raw(OLD / "pqn")
    assert '"enabled": true' in raw(OLD / "dqn")
    parts: set[str] = set()
    for path in OLD.glob("*/checkpoints/step-*/state.json"):
        parts |= set(json.loads(path.read_text())["parts"])
    assert set(renamed.PARTS) <= parts


@pytest.mark.parametrize("algorithm", ["dqn", "pqn", "simbav2", "mrq"])
def test_an_old_run_is_resumed(algorithm: str, old: Path, command: Command) -> None:
    path = old / algorithm
    result = command("train", "--resume", path, "--until", "0")
    assert (result.code, result.err.replace("\r", "").count("warning")) == (0, 0)
    run = Run.open(path)
    assert run.done is not None
    assert run.done["steps"] == 128
    steps = [row["step"] for row in run.rows("train")]
    assert steps == sorted(set(steps))
    _, state = checkpoint.read(checkpoint.newest(path / "checkpoints"))
    assert not set(state) & set(renamed.PARTS)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """All single values in rows of a stream, with their places."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, f"{place}/{key}")
    else:
        yield place, value


@pytest.mark.parametrize("algorithm", ["dqn", "pqn", "simbav2", "mrq"])
def test_its_settings_still_give_its_rows(algorithm: str, tmp_path: Path) -> None:
    _, _, spec = start.open_run(str(OLD / algorithm))
    assert spec.train.until == 64
    start.train(algorithm, replace(spec, run_dir=str(tmp_path / "run")))
    for stream in ("episodes", "train", "eval", "health"):
        ours, theirs = (
            dict(leaves(list(Run.open(path).rows(stream))))
            for path in (tmp_path / "run", OLD / algorithm)
        )
        assert ours.keys() >= theirs.keys(), stream  # newer diagnoses measure more
        assert stream == "health" or ours.keys() == theirs.keys(), stream
        # Equal to the last bit on the processor that they were recorded on.
        for place, value in theirs.items():
            if isinstance(value, float):
                assert ours[place] == pytest.approx(value, rel=1e-4, abs=1e-6), place
            else:
                assert ours[place] == value, place


def test_the_settings_are_those_of_the_old_run(old: Path) -> None:
    _, _, spec = start.open_run(str(old / "pqn"))
    assert (spec.algo.q_lambda, spec.remedy, spec.remedies) == (0.9, "none", {})
    _, _, spec = start.open_run(str(old / "dqn"))
    assert (spec.remedy, spec.remedies) == ("redo", {"redo": {"tau": 0.3, "period": 4}})
    # The folder of these settings is called as it was then.
    name = start.default_run_dir("dqn", spec)
    assert name == "runs/dqn_probe-both_plain_relu_redo_2fa0a10a_seed0"


def test_old_runs_are_evaluated_and_diagnosed(old: Path, command: Command) -> None:
    assert command("evaluate", old / "dqn", "--episodes", "1", "--device", "cpu").code == 0
    assert command("analyze", old / "pqn", "--samples", "16", "--device", "cpu").code == 0


def test_old_runs_are_reported_and_packed(old: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("simbav2", "mrq"):
        shutil.rmtree(old / name)
    labels = {run.path.name: run.label for run in load([old / "pqn", old / "dqn"])}
    assert labels == {"pqn": "ReLU", "dqn": "ReLU + ReDo"}
    assert pack(old / "dqn", "-o", tmp_path / "packed") == 0
    (packed,) = load([tmp_path / "packed"])
    (old_packed,) = load([old / "dqn.hrun"])
    for run in (packed, old_packed):
        assert (run.label, run.spec["redo.tau"]) == ("ReLU + ReDo", 0.3)
        assert not set(run.spec) & {*renamed.SETTINGS, *renamed.SWITCHES, *renamed.RETIRED}
    assert packed.spec == old_packed.spec
    page = tmp_path / "page.html"
    assert cli.main(["report", str(old / "dqn"), str(old / "pqn"), "-o", str(page)]) == 0
    assert "--remedy redo --redo.tau 0.3" in page.read_text()


def test_the_committed_runs_are_read(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = sorted((ROOT / "results" / "minatar-full").glob("pqn_minatar-asterix_*_seed0.hrun"))
    remedies = {run.label: run.spec["remedy"] for run in load(paths)}
    assert remedies.pop("ReLU + ReDo") == "redo"
    assert remedies == dict.fromkeys(("ReLU", "tanh", "tanh + HR", "CReLU"), "none")
