"""A short form of ``chaos.py``, which breaks runs at random for as long as one likes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

FAULTS = 8


def test_nothing_is_lost_in_a_few_rounds(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    words = ["--faults", FAULTS, "--seed", 7, "--sweeps", 0, "--rays", 0, "--output", counts]
    command = [sys.executable, str(ROOT / "tests" / "chaos.py"), *map(str, words)]
    chaos = subprocess.run(command, capture_output=True, text=True, check=False)
    assert chaos.returncode == 0, chaos.stdout + chaos.stderr
    assert f"rounds from seed {7}" in chaos.stdout
    faults = json.loads(counts.read_text())
    assert sum(sum(kinds.values()) for kinds in faults.values()) >= FAULTS
    assert not any(kinds.get("lost") for kinds in faults.values())
