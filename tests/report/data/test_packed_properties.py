"""Any run is packed and read back with the same numbers, and no damage passes unnoticed."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadamard.core.run import RunError
from hadamard.report.data.packed import packed, read_packed, record_of, unpacked, write_packed
from hadamard.report.data.runs import read_run
from tests.support.runs import measured, played_alongside, write_run

PATH = Path("some.hrun")
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=15,
)
RECORDS = st.dictionaries(st.text(max_size=4).filter(lambda key: key != "spec"), VALUES)
SCORES = st.floats(-1e6, 1e6, width=32)
SHARES = st.none() | st.floats(0, 1)


@settings(max_examples=40)  # each is written to the disk
@given(RECORDS)
def test_any_record_comes_back_as_it_was(record: dict[str, Any]) -> None:
    data = packed(record)
    assert unpacked(data, PATH) == record
    assert packed(json.loads(json.dumps(record))) == data
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # a new file, then one in another's place
            write_packed(Path(folder) / "run.hrun", data)
            assert read_packed(Path(folder) / "run.hrun") == record
        assert [path.name for path in Path(folder).iterdir()] == ["run.hrun"]


@given(RECORDS, st.data())
def test_a_flipped_bit_is_refused_or_changes_nothing(
    record: dict[str, Any], data: st.DataObject
) -> None:
    content = bytearray(packed(record))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    if 4 <= place < 10:  # the time and the system in the head of a gzip file
        assert unpacked(bytes(content), PATH) == record
        return
    with pytest.raises(RunError, match="some.hrun"):
        unpacked(bytes(content), PATH)


@given(RECORDS, st.data())
def test_what_is_cut_off_is_refused(record: dict[str, Any], data: st.DataObject) -> None:
    content = packed(record)
    with pytest.raises(RunError, match="some.hrun is (cut off|damaged)"):
        unpacked(content[: data.draw(st.integers(0, len(content) - 1))], PATH)


@st.composite
def run_folders(draw: st.DrawFn, folder: Path) -> Path:
    """A run with random scores and health, of any length and with or without an end."""
    layers = st.builds(measured, SHARES, st.none() | st.integers(1, 4), SHARES)
    options: dict[str, Any] = {
        "seed": draw(st.integers(0, 99)),
        "steps": draw(st.integers(10, 3000)),
        "score": draw(st.lists(SCORES | st.none(), max_size=10)),
        "health": draw(st.lists(layers, max_size=5)),
        "finished": draw(st.booleans()),
    }
    if draw(st.booleans()):
        steps = draw(st.lists(st.integers(0, options["steps"]), max_size=20).map(sorted))
        return played_alongside(folder, {step: draw(SCORES) for step in steps}, **options)
    return write_run(folder, **options)


@settings(max_examples=30)
@given(st.data())
def test_a_packed_run_has_the_numbers_of_its_folder(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = data.draw(run_folders(Path(name) / "run"))
        path = Path(name) / "run.hrun"
        write_packed(path, packed(record_of(folder)))
        run, other = read_run(folder), read_run(path)
        fields = (
            "name", "algorithm", "spec", "versions", "commit", "protocol", "machine", "summary",
            "reached", "episodes", "lost_episodes", "representation", "threshold", "delta",
            "score_kind", "finished",
        )  # fmt: skip
        for field in fields:
            assert getattr(run, field) == getattr(other, field), field
        for field in ("scores", "finals", "layers", "health_steps", "steps_per_second", "seconds"):
            np.testing.assert_equal(getattr(run, field), getattr(other, field), field)
        assert [run.replace(str(folder), "run") for run in run.troubles] == other.troubles
        # The final score is of all episodes, whatever is left out of the curve.
        rows = (folder / "episodes.jsonl").read_text().splitlines() if run.episodes else []
        scores = [json.loads(row)["score"] for row in rows]
        known = [score for score in scores if score is not None]
        assert run.lost_episodes == len(scores) - len(known)
        expected = math.fsum(known) / len(known) if known else math.nan
        assert other.finals["training"] == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
