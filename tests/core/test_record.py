"""The record of a run's checkpoints: only what the program made is ever removed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hadamard.core import files, record
from hadamard.core.files import RunError
from hadamard.core.record import Record

ONE, TWO = "step-000000000001", "step-000000000002"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "checkpoints"
    folder.parent.mkdir()
    record.begin(folder)
    return folder


def test_names_and_steps() -> None:
    assert record.name_of(1) == ONE
    assert record.step_of(Path(ONE)) == 1
    with pytest.raises(ValueError, match="step-1 is not the name of a checkpoint"):
        record.step_of(Path("step-1"))


def test_only_real_folders_with_a_checkpoints_name_are_checkpoints(folder: Path) -> None:
    for name in (ONE, TWO, f"{ONE}-best", f".{ONE}.part"):
        (folder / name).mkdir()
    (folder / "step-000000000003").touch()
    (folder / "step-000000000004").symlink_to(folder / ONE)
    assert [path.name for path in record.checkpoints(folder)] == [TWO, ONE]
    assert record.checkpoints(folder / "absent") == []


def test_the_record_comes_back(folder: Path) -> None:
    assert record.read(folder) == Record([], [])
    record.write(folder, Record([TWO], [ONE]))
    assert record.read(folder) == Record([TWO], [ONE]) == record.own(folder)


def test_names_that_are_no_checkpoints_are_not_read(folder: Path) -> None:
    (folder / "record.json").write_text(f'{{"saved": ["../../elsewhere", "{ONE}"]}}')
    assert record.read(folder) == Record([], [ONE])


def test_a_damaged_record_says_what_can_be_done(folder: Path) -> None:
    (folder / "record.json").write_text('{"saved": [5]}')
    with pytest.raises(RunError, match=r"record\.json is damaged: .*saved\[0\].* If it is removed"):
        record.read(folder)


def test_without_a_record_all_checkpoints_are_the_programs_own(folder: Path) -> None:
    (folder / "record.json").unlink()
    (folder / ONE).mkdir()
    assert record.read(folder) is None
    assert record.own(folder) == Record([], [ONE])


def test_a_folder_is_untouched_until_something_is_in_it(folder: Path) -> None:
    assert record.is_untouched(folder)
    (folder / files.unfinished_name("record.json")).touch()
    assert record.is_untouched(folder)
    (folder / "record.json").unlink()
    assert record.is_untouched(folder)
    record.write(folder, Record([ONE], []))
    assert not record.is_untouched(folder)
    record.write(folder, Record([], []))
    (folder / "mine").touch()
    assert not record.is_untouched(folder)
    assert not record.is_untouched(folder / "absent")


def test_lost_checkpoints_are_named(folder: Path) -> None:
    record.require_never_saved(folder, rows=True)
    record.write(folder, Record([ONE], []))  # begun, and killed inside of the first save
    record.require_never_saved(folder, rows=True)
    record.write(folder, Record([], [TWO, ONE]))
    with pytest.raises(RunError, match=rf"its checkpoints \({TWO}, {ONE}\) cannot be found"):
        record.require_never_saved(folder, rows=False)
    (folder / "record.json").unlink()
    record.require_never_saved(folder, rows=False)
    with pytest.raises(RunError, match=re.escape(f"its folder {folder} cannot be found")):
        record.require_never_saved(folder, rows=True)


def test_removing_follows_no_link(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (folder / ONE).mkdir()
    (folder / ONE / "link").symlink_to(precious)
    (folder / TWO).symlink_to(precious)
    record.remove([folder / ONE, folder / TWO])
    assert not (folder / ONE).exists()
    assert (folder / TWO).is_symlink()
    assert (precious / "file").exists()


def test_only_unfinished_checkpoints_and_records_are_removed(folder: Path) -> None:
    (folder / files.unfinished_name(ONE)).mkdir()
    (folder / files.unfinished_name("record.json")).touch()
    stay = {
        "record.json",
        files.unfinished_name("mine"),
        files.unfinished_name(f"{ONE}-best"),
        ".part-7",
    }
    for name in stay - {"record.json"}:
        (folder / name).mkdir()
    file, other = folder / files.unfinished_name(TWO), folder / files.unfinished_name("record.json")
    file.touch()  # a file in place of a folder, and a folder in place of a file
    other.mkdir()
    record.remove_unfinished(folder)
    assert {path.name for path in folder.iterdir()} == stay | {file.name, other.name}
