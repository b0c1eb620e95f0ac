"""No value in a run's files ends in a traceback or a hang, and a refusal names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hadamard.core import checkpoint
from hadamard.core.run import Run
from tests.fuzz import fields, runs
from tests.fuzz.test_options import assert_no_faults

COUNT, SEED = 1_000, 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fields")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    return runs.write_all(folder)


def test_every_file_of_a_run_is_damaged(trained: Path) -> None:
    targets = fields.targets(trained)
    files = {(target.run, target.place.file) for target in targets if target.run.is_dir()}
    for run in (path for folder in trained.iterdir() for path in folder.iterdir() if path.is_dir()):
        for path in run.rglob("*"):
            if path.is_file() and path.name != "lock":
                assert (run, str(path.relative_to(run))) in files
    assert {"config.json", "DONE", "record.json", "manifest.json", "state.json"} < {
        target.kind for target in targets
    }


def test_hostile_fields_are_refused_by_file(trained: Path, folder: Path) -> None:
    assert_no_faults(fields.sample(trained, COUNT, SEED), folder)


def test_damage_that_is_vouched_for_is_read(trained: Path, tmp_path: Path) -> None:
    """Otherwise every refusal would be that of a checksum."""
    target = next(
        target
        for target in fields.targets(trained)
        if target.run.name == "interrupted" and target.place.keys[-1:] == ("episodes",)
        if target.kind == "state.json"
    )
    target.case("resume", "one").prepare(tmp_path)
    run = Run.open(tmp_path / runs.place(target.algorithm))
    path = run.path / target.place.file
    _, state = checkpoint.read(path.parent)
    assert json.loads(path.read_text())["parts"]["loop"]["episodes"] == 1
    assert state["loop"]["episodes"] == 1
