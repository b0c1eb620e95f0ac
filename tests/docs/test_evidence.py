"""The evidence pages are in step with the packed runs they are drawn from."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from hadamard import cli
from hadamard.core.run import PROTOCOL
from hadamard.report.data.runs import gather
from tests.support.paths import ROOT

COMMANDS = re.findall(r"^\t@\$\(BIN\)/hadamard (reproduce .*--folder results .*)$",
                      (ROOT / "Makefile").read_text(), re.M)  # fmt: skip


def test_all_packed_runs_are_whole_and_of_this_protocol() -> None:
    assert COMMANDS
    files = list((ROOT / "results").rglob("*.hrun"))
    assert files
    assert sum(file.stat().st_size for file in files) < 50e6
    for folder in {file.parent for file in files}:
        runs, troubles = gather([folder])
        assert not troubles
        assert all(run.finished for run in runs)
        assert {run.protocol for run in runs} == {PROTOCOL}
        assert len(list(folder.glob("*.hrun"))) == len(runs)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_pages_have_the_runs_numbers(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    kept = ROOT / words[words.index("--output") + 1]
    words[words.index("--output") + 1] = str(tmp_path)
    assert cli.main(words) == 0
    tables = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv"))
    assert tables
    for table in tables:
        drawn, shown = (
            list(csv.reader((folder / table).read_text().splitlines()))
            for folder in (tmp_path, kept)
        )
        assert len(drawn) == len(shown), table
        for ours, theirs in zip(drawn, shown, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                try:  # the last digits may be another machine's
                    assert float(one) == pytest.approx(float(other), rel=1e-6, abs=1e-9), table
                except ValueError:
                    assert one == other, table
