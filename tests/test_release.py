"""What a release is made of: the quickstart notebook, the Dockerfile, and the files they name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hadamard
from tests.support.paths import ROOT

NOTEBOOK, DOCKERFILE = ROOT / "examples" / "quickstart.ipynb", ROOT / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def ci(script: str, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    pytest.importorskip("matplotlib")
    done = ci("run_notebook.py", NOTEBOOK, "STEPS=8192", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hidden bias: 0." in done.stdout
    assert re.search(r"^plain score [\d.]+$", done.stdout, re.M)
    assert "tanh + HR against tanh: too few seeds" in done.stdout
    page = (tmp_path / "quickstart.html").read_text()
    assert "tanh with and without HR" in page
    assert len(list((tmp_path / "runs" / "quickstart").glob("*/DONE"))) == 2


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 4
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_a_value_that_no_cell_gives_is_refused(tmp_path: Path) -> None:
    done = ci("run_notebook.py", NOTEBOOK, "STPES=8192", folder=tmp_path)
    assert done.returncode != 0
    assert "gives no value to STPES" in done.stderr


def test_the_dockerfile_installs_extras_that_there_are() -> None:
    text = DOCKERFILE.read_text()
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", text, re.M)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    copied = re.findall(r"^COPY (.+) \S+$", text, re.M)
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed
    (python,) = re.findall(r"^FROM python:(\d\.\d+)-", text, re.M)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_the_dockerfiles_commands_run_without_docker(tmp_path: Path) -> None:
    """On a Dockerfile of the same shape that installs nothing; the real one takes minutes."""
    (tmp_path / ".ci").mkdir()
    script = (ROOT / ".ci" / "run_dockerfile.py").read_text()
    (tmp_path / ".ci" / "run_dockerfile.py").write_text(script)
    (tmp_path / ".dockerignore").write_text("*\n!note.txt\n")
    (tmp_path / "note.txt").write_text("copied\n")
    (tmp_path / "Dockerfile").write_text(
        "# a comment\nFROM python:3.12\nARG WORD=default\nRUN apt-get update\nWORKDIR /opt/x\n"
        'COPY note.txt ./\nRUN cat note.txt && echo "$WORD" \\\n    && command -v python\n'
        'USER someone\nENTRYPOINT ["echo"]\nCMD ["the", "end"]\n'
    )
    command = [sys.executable, str(tmp_path / ".ci" / "run_dockerfile.py"), "--arg", "WORD=given"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "left out (--system): apt-get update" in lines
    assert {"copied", "given", "the end"} <= set(lines)
    assert any(line.endswith("/venv/bin/python") for line in lines)
    assert lines[-1] == "all commands of the Dockerfile ran"


def test_versions_agree() -> None:
    assert PROJECT["version"] == hadamard.__version__
    assert f"## {hadamard.__version__}" in (ROOT / "CHANGELOG.md").read_text()
