"""The examples run as a reader would run them, only shorter."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hadamard
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


def start(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def run(script: str, *arguments: str, folder: Path) -> str:
    done = start(script, *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("hadamard", [False, True], ids=["tanh", "hadamard"])
def test_the_flag_of_the_single_file_dqn_changes_one_layer(hadamard: bool, tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    options = ["--steps", "1500", "--learning-starts", "500", "--target-period", "200"]
    printed = run("cleanrl_style_dqn.py", *options, *(["--hadamard"] * hadamard), folder=tmp_path)
    scores = re.findall(r"step ([\d,]+)  score ([\d.]+) \(last (\d+) games\)", printed)
    assert scores[-1][0] == "1,500"
    assert 0 <= float(scores[-1][1]) < 50
    assert int(scores[-1][2]) > 10
    assert "QNetwork: 2 hidden layers" in printed
    measured = re.findall(r"^(convolution\S*|hidden\S*) +(\d+) ", printed, re.M)
    hidden = "hidden" if hadamard else "hidden.1"
    assert [name for name, _ in measured] == ["convolution.1", hidden]
    assert measured[1][1] == "128"


def test_the_monitor_writes_a_row_for_every_diagnosis(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    printed = run("monitor_in_your_loop.py", "--steps", "600", "--every", "5", folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "health.jsonl").read_text().splitlines()]
    assert len(rows) == printed.count("effective rank") >= 2
    assert [row["step"] for row in rows] == [5 * (i + 1) for i in range(len(rows))]
    for row in rows:
        assert [layer["name"] for layer in row["layers"]] == ["1", "3"]
        assert all(1 <= layer["effective_rank"] <= layer["neurons"] for layer in row["layers"])
    # The policy learns, so its representation is not the same in every row.
    assert rows[0]["layers"] != rows[-1]["layers"]


def test_the_demo_runs_and_reads_its_own_numbers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--output", "demo", "--seeds", "1", "--tasks", "2", "--steps", "5"]
    printed = run("tanh_vs_hadamard.py", *options, folder=tmp_path)
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"index.html", "curves.png", "kde_tanh.png", "kde_tanh_hr.png"} <= names
    assert "After the last task, mean of 1 seed:" in printed
    assert "Open" in printed
    refused = start("tanh_vs_hadamard.py", "--tasks", "0", folder=tmp_path)
    assert refused.returncode == 2
    assert "--tasks must be at least 1, got 0" in refused.stderr


def test_optuna_tunes_with_two_trials_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="tuning with Optuna: pip install optuna")
    options = ["--env", "probe/constant", "--trials", "4", "--jobs", "2", "--steps", "4200"]
    printed = run("tune_with_optuna.py", *options, "--folder", "runs", folder=tmp_path)
    assert "best of 4 trials: score " in printed
    assert len(hadamard.load_runs(tmp_path / "runs")) == 4


def test_ray_tunes_with_a_process_for_each_trial(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="tuning with Ray: pip install 'ray[tune]'")
    pytest.importorskip("tensorboardX", reason="tuning with Ray: pip install 'ray[tune]'")
    options = ["--env", "probe/constant", "--trials", "2", "--steps", "4200"]
    printed = run("tune_with_ray.py", *options, "--folder", "tuning", folder=tmp_path)
    assert "best of 2 trials: score " in printed
    assert len(hadamard.load_runs(tmp_path / "tuning" / "runs")) == 2


@pytest.mark.parametrize(
    "script",
    [
        "cleanrl_style_dqn.py",
        "monitor_in_your_loop.py",
        "tune_with_optuna.py",
        "tune_with_ray.py",
    ],
)
def test_only_the_public_api_is_imported(script: str) -> None:
    tree = ast.parse((EXAMPLES / script).read_text())
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    ]
    assert [name for name in modules if name and name.startswith("hadamard")] == ["hadamard"]
