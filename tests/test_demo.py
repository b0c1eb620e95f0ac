"""The demo, the report and the benchmark as a person starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hadamard.cli import main
from hadamard.experiments.bench import Bench, Timing, measure, table

pytest.importorskip("matplotlib")
pytest.importorskip("minatar")


def hadamard(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hadamard.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    done = hadamard("demo", "--output", str(folder), "--steps", "6000", "--seeds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_the_demo_trains_both_and_writes_the_page(demo: tuple[Path, str]) -> None:
    folder, told = demo
    runs = sorted((folder / "runs").glob("*/DONE"))
    assert [json.loads(run.read_text())["steps"] for run in runs] == [6000, 6000]
    layers = [json.loads((r.parent / "config.json").read_text())["spec"]["net"] for r in runs]
    assert [net["layer"] for net in layers] == ["hadamard", "plain"]
    assert {net["activation"] for net in layers} == {"tanh"}
    page = (folder / "index.html").read_text()
    few = "too few seeds to show a difference"
    for part in ("What the numbers say", few, "Effective rank", "neuron"):
        assert part in page
    assert "tanh, seed 0: done" in told
    assert few in told
    assert f"Open {folder / 'index.html'}" in told


def test_a_demo_that_is_there_is_not_trained_again(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/*.jsonl")}
    done = hadamard("demo", "--output", str(folder), "--steps", "6000", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_demo_run_that_fails_is_shown(demo: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "runs" / "dqn_minatar-breakout_plain_seed0"
    run.mkdir(parents=True)
    (run / "something").write_text("else")
    done = hadamard("demo", "--output", str(tmp_path), "--steps", "6000", "--seeds", "1")
    assert done.returncode == 2
    assert "the demo's run tanh, seed 0 failed" in done.stderr
    assert "exists and is not a run" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "dqm"], "unknown algorithm 'dqm'; did you mean 'dqn'?"),
        (["--env", "minatar/breakuot"], "did you mean 'breakout'"),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--steps", "100"], "--train.steps 100 ends before anything is learned"),
    ],
)
def test_a_wrong_demo_is_told_before_any_run(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--output", str(tmp_path / "demo"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_the_report_writes_page_and_figure(
    demo: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figure = tmp_path / "page.html", tmp_path / "figure.png"
    words = ["report", str(demo[0] / "runs"), "--output", str(page), "--figure", str(figure)]
    assert main(words) == 0
    assert "from 2 runs" in capsys.readouterr().out
    # The commands name what differs from the defaults, and nothing else.
    text = page.read_text()
    assert "hadamard train dqn --env minatar/breakout" in text
    assert "--algo.gamma" not in text
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_the_benchmark_measures_every_part() -> None:
    asked = Bench(env="probe/both", algorithms=("ppo",), seconds=0.05)
    for timing, diagnosis in measure("ppo", asked).values():
        assert timing.steps > 0
        assert all(timing.parts[part] > 0 for part in ("acting", "stepping", "learning"))
        assert sum(timing.parts.values()) <= timing.seconds
        assert diagnosis > 0


def test_the_benchmark_lays_out_shares() -> None:
    parts = {"acting": 0.5, "stepping": 1.0, "learning": 2.25, "greedy play": 0.25}
    slow = Timing(steps=2_000, seconds=4.0, parts=parts)
    fast = Timing(steps=6_000, seconds=4.0, parts=parts)
    lines = table("on a machine", {"pqn": {"ReLU": (fast, 1e-6), "tanh + HR": (slow, 4e-6)}})
    assert [line.split() for line in lines.splitlines()[2:]] == [
        ["pqn", "ReLU", "1,500", "1.00", "12.5%", "25.0%", "56.2%", "6.2%", "0.1%"],
        ["pqn", "tanh", "+", "HR", "500", "0.33", "12.5%", "25.0%", "56.2%", "6.2%", "0.2%"],
    ]
