"""Files that a stranger may have prepared are read and replaced without following a link."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hadamard.core import files
from hadamard.core.files import RunError


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("{}")
    path.symlink_to(target)


STRANGE: dict[str, Callable[[Path], None]] = {
    "link": link,
    "broken link": lambda path: path.symlink_to(path.with_name("nowhere")),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "folder": os.mkdir,
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "config.json"
    make(path)
    assert not files.is_file(path)
    with pytest.raises(RunError, match="config.json is (a link|not a regular file)"):
        files.read_json(path)


@pytest.mark.parametrize("mode", ["ab", "r+b", "a+b", "xb"])
def test_writing_follows_no_link(tmp_path: Path, mode: files.Mode) -> None:
    path = tmp_path / "lock"
    link(path)
    with pytest.raises((RunError, FileExistsError)):
        files.open_file(path, mode)
    assert (tmp_path / "elsewhere").read_text() == "{}"


def test_an_absent_file_is_told_from_a_bad_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.read_json(tmp_path / "config.json")


def test_what_is_opened_can_be_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with files.open_file(path, "xb") as file:
        file.write(b"one")
    with pytest.raises(FileExistsError):
        files.open_file(path, "xb")
    with files.open_file(path, "ab") as file:
        file.write(b" two")
    with files.open_file(path, "r+b") as file:
        file.truncate(5)
    with files.open_file(path, "a+b") as file:
        file.write(b"!")
        file.seek(0)
        assert file.read() == b"one t!"


def test_the_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert files.read_bytes(path, limit=5) == b"12345"
    with pytest.raises(RunError, match=r"file is larger than the 4 bytes"):
        files.read_bytes(path, limit=4)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "codec can't decode"),
        (b"[]", r"its value must be an object, got \[\]"),
        (b"5", "its value must be an object, got 5"),
        (b'"text"', "its value must be an object, got 'text'"),
        (b'{"a": ' * 200 + b"1" + b"}" * 200, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "integer string conversion"),
    ],
)
def test_damaged_json_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"config\.json is damaged: .*{reason}"):
        files.read_json(path)


def test_json_comes_back_with_its_type(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    nested: Any = 1
    for _ in range(98):
        nested = [nested]
    path.write_text(json.dumps({"a": nested}))
    assert files.read_json(path) == {"a": nested}
    path.write_text("[1, 2]")
    assert files.read_json(path, tuple[int, ...]) == (1, 2)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "DONE"
    files.write_atomically(path, "old")
    with path.open() as reader:
        files.write_atomically(path, b"new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["DONE"]


def test_replacing_a_link_leaves_its_target_alone(tmp_path: Path) -> None:
    path = tmp_path / "DONE"
    link(path)
    files.write_atomically(path, "new")
    assert (tmp_path / "elsewhere").read_text() == "{}"
    assert (path.is_symlink(), path.read_text()) == (False, "new")


def test_a_failed_replacement_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "DONE"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["DONE"]


def test_unfinished_names_cannot_be_guessed() -> None:
    names = {files.unfinished_name("DONE") for _ in range(100)}
    assert len(names) == 100
    assert {files.finished_name(name) for name in names} == {"DONE"}
    for name in ("DONE", ".DONE.part", ".DONE.0123456789abcde.part", "DONE.0123456789abcdef.part"):
        assert files.finished_name(name) is None


def test_folders_are_real_folders(tmp_path: Path) -> None:
    real, linked, file = tmp_path / "real", tmp_path / "linked", tmp_path / "file"
    files.make_folder(real)
    files.make_folder(real)  # again changes nothing
    linked.symlink_to(real)
    file.touch()
    assert [files.is_folder(path) for path in (real, linked, file)] == [True, False, False]
    assert not files.is_folder(tmp_path / "absent")
    assert not files.is_folder(Path("with a null\0"))
    files.require_folder(real)
    files.require_folder(tmp_path / "absent")
    with pytest.raises(RunError, match="linked is a link"):
        files.make_folder(linked)
    with pytest.raises(RunError, match="file is not a folder"):
        files.make_folder(file)
