"""The comparison as text, with nothing but torch and numpy installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hadamard.report.data.packed import packed, record_of, write_packed
from hadamard.report.data.runs import load
from hadamard.report.pages.text_report import text_report
from tests.support.runs import write_run

CORE_ALONE = """
import importlib.util, sys
OTHERS = ("tyro", "rich", "matplotlib", "safetensors", "yaml", "pandas", "gymnasium", "scipy")
real = importlib.util.find_spec
def find_spec(name, package=None):
    return None if name.partition(".")[0] in OTHERS else real(name, package)
importlib.util.find_spec = find_spec
for name in OTHERS:
    sys.modules[name] = None
import hadamard.cli
sys.exit(hadamard.cli.main(sys.argv[1:]))
"""


def with_core_alone(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CORE_ALONE, *map(str, words)], capture_output=True, text=True
    )


def test_the_text_has_the_findings_and_the_numbers(tmp_path: Path) -> None:
    write_run(tmp_path / "a", score=1.0)
    write_run(tmp_path / "b", seed=1, score=4.0)
    text = text_report(load([tmp_path]), ["one more could not be read"])
    lines = text.splitlines()
    assert lines[:2] == ["2 runs, all finished", "one more could not be read"]
    assert any("is the only variant" in line for line in lines)
    (row,) = [line for line in lines if "1 · 4" in line]
    assert "2.50" in row


def test_the_core_alone_reports(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", score=3.0)
    run = tmp_path / "run.hrun"
    write_packed(run, packed(record_of(folder)))
    for path in (folder, run):
        done = with_core_alone("report", path)
        assert done.returncode == 0, done.stderr
        assert "1 run, all finished" in done.stdout
        assert "pip install 'hadamard-rl[report]' (from a checkout" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "fragment"),
    [
        (["--help"], 0, "usage: hadamard COMMAND"),
        (["--version"], 0, "hadamard "),
        (["report", "--help"], 0, "Only torch and numpy are installed"),
        (["report"], 2, "nothing to compare"),
        (["report", "x", "-o", "y.html"], 2, "-o needs more packages: pip install 'hadamard-rl[re"),
        (["report", "nowhere"], 2, "nowhere"),
        (["train", "ppo"], 2, "`hadamard train` needs more packages: pip install 'hadamard-rl[tr"),
    ],
)
def test_what_the_core_alone_says(words: list[str], code: int, fragment: str) -> None:
    done = with_core_alone(*words)
    assert done.returncode == code, done.stderr
    assert fragment in (done.stderr if code else done.stdout)
