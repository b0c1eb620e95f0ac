"""The rows of a stream: fast and slow reading agree, and damaged rows are left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hadamard.core.run import RunError
from tests.support.runs import write_run

pytest.importorskip("matplotlib")
from hadamard.report.data import rows
from hadamard.report.data.runs import gather, load


def test_fast_and_slow_reading_agree(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    written = [
        {"step": 1, "env": 0, "score": 2.0, "length": 3},
        {"step": 20, "env": 1, "score": -1.5e-07, "length": 4},
        {"step": 300, "env": 0, "score": 1e22, "length": 5},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in written))
    fast = rows.columns(path, ("step", "score"))
    assert fast.values["score"].tolist() == [2.0, -1.5e-07, 1e22]
    assert rows._uniform_columns(path.read_bytes(), ("step", "score")) is not None
    with open(path, "a") as file:
        file.write('{"step": 301, "env": 0, "score": null, "length": 5}\n{"step": 302, "sco')
    slow = rows.columns(path, ("step", "score"))
    assert rows._uniform_columns(path.read_bytes(), ("step", "score")) is None
    np.testing.assert_array_equal(slow.values["score"], [2.0, -1.5e-07, 1e22, np.nan])
    assert slow.values["step"].tolist() == [1, 20, 300, 301]
    assert not slow.troubles  # a last line may be torn
    assert rows.last_row(path)["step"] == 301
    assert rows.columns(tmp_path / "none.jsonl", ("step",)).values["step"].size == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not JSON", "line 3 of "),
        ('{"step": 150, "env": 0, "sco\x00\x00', "line 3 of "),
        ('{"score": 5.0}', "line 3 of "),
        ('["step", 3]', "line 3 of "),
        ('{"step": ' + "[" * 100_000, "line 3 of "),
        ('{"step": 150, "env": 0}', "lacks 'score'"),
        ('{"step": 150, "score": "high"}', "has something else than numbers"),
    ],
)
def test_a_damaged_row_is_reported_and_left_out(tmp_path: Path, line: str, message: str) -> None:
    folder = write_run(tmp_path / "a", score=2.0)
    write_run(tmp_path / "b", seed=1, score=2.0)
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    (folder / "episodes.jsonl").write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    runs, troubles = gather([tmp_path])
    assert not troubles
    (damaged,) = (run for run in runs if run.troubles)
    assert message in damaged.troubles[0]
    assert damaged.episodes == 10
    assert damaged.final("score") == 2
    with pytest.raises(RunError, match="episodes.jsonl"):
        load([tmp_path])
