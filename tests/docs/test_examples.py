"""The example scripts run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_the_demo_runs_and_reads_its_own_numbers(tmp_path: Path) -> None:
    script = ROOT / "examples" / "tanh_vs_hadamard.py"
    options = ["--output", str(tmp_path), "--seeds", "1", "--tasks", "2", "--steps", "5"]
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert {"index.html", "curves.png", "kde_tanh.png", "kde_tanh_hr.png"} <= names
    assert "After the last task, mean of 1 seed:" in done.stdout
    assert "Open" in done.stdout
    bad = subprocess.run([sys.executable, script, "--tasks", "0"], capture_output=True, text=True)
    assert bad.returncode == 2
    assert "--tasks must be at least 1, got 0" in bad.stderr
