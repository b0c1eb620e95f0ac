"""Published curves of other methods are read, or refused with a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hadamard.cli import main
from tests.support.report import table

pytest.importorskip("matplotlib")
from hadamard.report.data.imported import read_curves

CURVES = """method,env,seed,step,score
DrQ-v2,minatar/breakout,0,0,1
DrQ-v2,minatar/breakout,0,1000,5
DrQ-v2,minatar/breakout,1,1000,7
XQC,atari/Pong,0,1000,7
"""


def test_curves_of_other_methods_are_drawn_beside_ours(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    file.write_text(CURVES)
    drqv2, xqc = read_curves(file)
    assert (drqv2.method, drqv2.env, xqc.env) == ("DrQ-v2", "minatar/breakout", "atari/Pong")
    np.testing.assert_array_equal(drqv2.scores, [[1, 5], [np.nan, 7]])
    out = tmp_path / "out"
    assert main(["report", str(runs), "-o", str(out), "--curves", str(file)]) == 0
    page = (out / "index.html").read_text()
    assert "Dotted: DrQ-v2, from --curves" in page
    assert '<li data-variant="DrQ-v2">' in page
    assert "XQC" not in page  # of a task there are no runs of
    data = re.search(r'id="charts">(.*?)</script>', page)
    assert data
    lines = {
        chart["name"]: {line["label"]: line for line in chart["lines"]}
        for chart in json.loads(data.group(1))
    }
    assert lines["score-dqn-on-minatar-breakout"]["DrQ-v2"]["x"] == [0, 1000]
    assert "DrQ-v2" not in lines["score-dqn-on-minatar-asterix"]
    assert not any("DrQ-v2" in str(line) for line in table(out, "aggregates-dqn"))


def test_curves_are_not_read_from_a_device(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", str(runs), "-o", str(tmp_path / "o"), "--curves", "/dev/zero"]
    assert main(words) == 2
    assert "'/dev/zero' is not a regular file: name a CSV file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("method,env,step,score\n", "has no column seed: its first line must name method, env"),
        ("method,env,seed,step,score\n", "holds no curve"),
        ("method,env,seed,step,score\na,minatar/asterix,0,1k,2\n", "line 2: .* got '1k' and '2'"),
        ("method,env,seed,step,score\na,minatar/asterix,0\n", "line 2: .* got None and None"),
        ("method,env,seed,step,score\na,atari/Pong,0,1,2\n", "curves on atari/Pong, and the runs"),
    ],
)
def test_curves_that_cannot_be_used_are_refused(
    text: str | None, message: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "curves.csv"
    if text is not None:
        file.write_text(text)
    assert main(["report", str(runs), "-o", str(tmp_path / "o"), "--curves", str(file)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert main(["report", str(runs), "-o", str(tmp_path / "o.html"), "--curves", str(file)]) == 2
    assert "name a folder with -o" in capsys.readouterr().err
    assert not (tmp_path / "o.html").exists()
