"""`hadamard demo`, and a report on its runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hadamard.cli import main

pytest.importorskip("matplotlib")
pytest.importorskip("minatar")
from hadamard.experiments.demo import Setting
from hadamard.training.start import default_spec


def hadamard(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hadamard", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    process = hadamard("demo", "--output", str(folder), "--steps", "6000", "--seeds", "1")
    assert process.returncode == 0, process.stdout + process.stderr
    return folder, process.stdout


def test_the_demo_trains_both_and_writes_the_page(demo: tuple[Path, str]) -> None:
    folder, output = demo
    runs = sorted((folder / "runs").glob("*/DONE"))
    assert [json.loads(run.read_text())["steps"] for run in runs] == [6000, 6000]
    layers = [json.loads((r.parent / "config.json").read_text())["spec"]["net"] for r in runs]
    assert [net["layer"] for net in layers] == ["hadamard", "plain"]
    assert {net["activation"] for net in layers} == {"tanh"}
    page = (folder / "index.html").read_text()
    few = "too few seeds to show a difference"
    for part in ("What the numbers say", few, "Effective rank", "neuron"):
        assert part in page
    assert "tanh, seed 0: finished · score " in output
    assert few in output
    # That the learning rate is no usual one is said on the page and here.
    unusual = "DQN on minatar/space_invaders, learning rate 0.004 (40 times the usual one)"
    assert unusual in output
    assert unusual in page
    assert f"Open {folder / 'index.html'}" in output


def test_finished_runs_of_the_demo_are_not_trained_again(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/*.jsonl")}
    assert main(["demo", "--output", str(folder), "--steps", "6000", "--seeds", "1"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_failed_run_of_the_demo_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs" / "dqn_minatar-space_invaders_plain_seed0"
    run.mkdir(parents=True)
    (run / "unrelated.txt").write_text("not a run")
    words = ["--output", str(tmp_path), "--steps", "6000", "--seeds", "1", "--jobs", "1"]
    assert main(["demo", *words]) == 2
    error = capsys.readouterr().err
    assert "the demo's run tanh, seed 0 failed" in error
    assert "exists and is not a run" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "dqm"], "unknown algorithm 'dqm'; did you mean 'dqn'?"),
        (["--env", "minatar/breakuot"], "did you mean 'breakout'"),
        (["--learning-rate", "-1"], "--learning-rate must be above 0, got -1"),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--seeds", "1000000000"], "--seeds 1000000000 asks for too many runs: 10,000 seeds"),
        (["--steps", "100"], "--train.steps 100 ends before anything is learned"),
    ],
)
def test_wrong_options_are_reported_before_any_run(
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
    assert "hadamard train dqn --env minatar/space_invaders" in text
    assert "--algo.learning-rate 0.004" in text
    assert "--algo.gamma" not in text
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_other_algorithms_keep_their_learning_rate() -> None:
    ours, usual = Setting("ppo", "minatar/asterix", 20_000), default_spec("ppo", "minatar/asterix")
    assert ours.base.algo == usual.algo
    assert ours.words == "PPO on minatar/asterix"
    assert Setting("ppo", "minatar/asterix", 20_000, 1e-3).base.algo.learning_rate == 1e-3
    assert Setting("dqn", "minatar/asterix", 20_000, 1e-4).words == "DQN on minatar/asterix"
