"""Fixtures of the pages' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadamard.report.data.runs import load
from hadamard.report.pages.full_report import write_report


@pytest.fixture(scope="session")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "out"
    return write_report(folder, load([runs]), "A <title>").parent
