"""Streams: what was written is known by rows, bytes and checksum, so that losses are noticed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadamard.core import streams
from hadamard.core.files import RunError
from hadamard.core.streams import Extent, Stream
from hadamard.core.typed import WrongType

ROWS = [{"step": step, "loss": 1 / (step + 1)} for step in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    stream = Stream(path)
    for row in ROWS:
        stream.write(row)
    stream.close()
    return path


def test_the_extent_counts_rows_that_are_not_yet_written(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    stream = Stream(path)
    assert stream.extent == streams.NOTHING
    stream.write({"step": 1})
    data = b'{"step": 1}\n'
    assert stream.extent == Extent(1, len(data), hashlib.sha256(data).hexdigest())
    stream.flush(to_disk=True)
    assert path.read_bytes() == data
    stream.close()
    again = Stream(path)  # opened again, it counts what is there
    again.write({"step": 2})
    again.close()
    assert again.extent == streams.measured(path)
    assert again.extent.rows == 2


def test_the_extent_of_the_first_bytes(path: Path) -> None:
    first = len(json.dumps(ROWS[0])) + 1
    assert streams.measured(path, first).rows == 1
    assert streams.measured(path, 0) == streams.NOTHING
    assert streams.measured(path).rows == len(ROWS)


def test_each_loss_is_named(path: Path) -> None:
    whole = path.read_bytes()
    saved = streams.measured(path)
    assert streams.problem(path, saved) is None
    path.write_bytes(whole + b"whatever follows")
    assert streams.problem(path, saved) is None
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert streams.problem(path, saved) == "train.jsonl holds 2 of 5 rows"
    path.write_bytes(whole.replace(b'"step": 1', b'"step": 7'))
    assert streams.problem(path, saved) == "train.jsonl was changed within its first 5 rows"
    path.unlink()
    assert streams.problem(path, saved) == "train.jsonl is missing, with 5 rows"
    assert streams.problem(path, saved._replace(rows=1)) == "train.jsonl is missing, with 1 row"
    assert streams.problem(path, streams.NOTHING) is None


def test_rows_are_cut_off(path: Path) -> None:
    size = streams.measured(path).bytes
    with path.open("ab") as file:
        file.write(b"\xff")
    streams.cut(path, size)
    assert list(streams.rows(path)) == ROWS
    streams.cut(path.with_name("absent"), 0)
    assert not path.with_name("absent").exists()


def test_only_wanted_rows_are_kept(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'[1]\n\xff\n{"step": 9')
    streams.keep(path, lambda row: row["step"] in (1, 3))
    assert list(streams.rows(path)) == [ROWS[1], ROWS[3]]
    streams.keep(path.with_name("absent"), lambda row: True)
    assert not path.with_name("absent").exists()


@pytest.mark.parametrize("change", ["write", "cut"])
def test_a_file_with_another_name_elsewhere_stays(path: Path, change: str) -> None:
    other = path.with_name("other")
    os.link(path, other)
    before = other.read_bytes()
    if change == "write":
        stream = Stream(path)
        stream.write({"step": 6})
        stream.close()
        assert len(list(streams.rows(path))) == len(ROWS) + 1
    else:
        streams.cut(path, 0)
        assert list(streams.rows(path)) == []
    assert other.read_bytes() == before


def test_a_damaged_line_is_named_and_a_cut_last_line_is_not(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"step": 5, "lo')
    assert list(streams.rows(path)) == ROWS
    with path.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(RunError, match=r"line 6 of .*train\.jsonl is damaged"):
        list(streams.rows(path))
    assert list(streams.rows(path.with_name("absent"))) == []


@pytest.mark.parametrize("line", [b"[1]", b"5", b"\xff", b"", b"[" * 100_000])
def test_a_line_that_is_no_object_is_damaged(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(RunError, match="line 1 of"):
        list(streams.rows(path))
    assert streams.last_rows(path, 99) == ROWS


@given(
    st.lists(st.dictionaries(st.text(max_size=9), st.text(max_size=3_000), max_size=4)),
    st.integers(1, 6),
)
def test_the_last_rows_are_those_of_a_whole_reading(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]], count: int
) -> None:
    path = tmp_path_factory.mktemp("stream") / "train.jsonl"
    stream = Stream(path)
    for row in rows:
        stream.write(row)
    stream.close()
    assert list(streams.rows(path)) == rows
    assert streams.last_rows(path, count) == rows[-count:]
    assert stream.extent == streams.measured(path)


def test_without_a_readable_file_there_are_no_last_rows(tmp_path: Path) -> None:
    assert streams.last_rows(tmp_path / "absent") == []
    (tmp_path / "folder").mkdir()
    assert streams.last_rows(tmp_path / "folder") == []


@pytest.mark.parametrize("value", [[1, 2], [-1, 2, "a"], [1, -2, "a"], [1, 2, 3], "abc", None])
def test_an_extent_of_another_form_is_refused(value: Any) -> None:
    with pytest.raises(WrongType, match=r"^streams\.train"):
        streams.extent(value, "streams.train")
    assert streams.extent([0, 0, "a"], "streams.train") == Extent(0, 0, "a")
