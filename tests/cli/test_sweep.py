"""The command that starts a sweep: what it prints, and what it refuses before any run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hadamard.cli import main
from hadamard.core.run import Run
from hadamard.report.data.runs import gather
from tests.support.sweep import jobs_in, sweep_words


def test_a_dry_run_lists_the_runs_and_a_sweep_trains_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", *sweep_words(tmp_path, "--dry-run", steps=300)]
    assert main(words) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[0] == f"absent      {tmp_path / 'dqn_probe-both_relu_seed0'}"
    assert "2 runs of 300 steps" in output
    assert not list(tmp_path.iterdir())
    words.remove("--dry-run")
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("2 finished\n")
    config = Run(jobs_in(tmp_path)[1].path).config["spec"]
    assert (config["net"]["activation"], config["train"]["steps"]) == ("tanh", 300)


def test_a_dry_run_refuses_what_the_sweep_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", *sweep_words(tmp_path, "--jobs", "2", steps=300)]
    assert main(words) == 0
    dry = ["sweep", *sweep_words(tmp_path, "--dry-run", steps=300)]
    capsys.readouterr()
    assert main(dry) == 0
    assert capsys.readouterr().out.count("finished ") == 2
    # Finished, but with other settings than are requested now.
    assert main(["sweep", *sweep_words(tmp_path, "--dry-run", steps=400)]) == 2
    assert "train.steps: 300 there, 400 here" in capsys.readouterr().err
    config = jobs_in(tmp_path)[0].path / "config.json"
    config.write_text(config.read_text()[:100])
    assert main(dry) == 0
    assert f"damaged     {config.parent}\n" in capsys.readouterr().out
    # A damaged run fails with its reason, and the other one goes on.
    assert main(words) == 1
    output = capsys.readouterr().out
    assert f"{config} is damaged (" in output
    assert f"restore the file, or remove the folder {config.parent} to run it anew" in output
    assert "1 finished, 1 failed" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "--seed", "3"], "--seed is set by the sweep"),
        (["--", "--net.activation=elu"], "--net.activation is set by the variant"),
        (["--variants", "relu,hrr"], "unknown variant 'hrr'"),
        (["--envs", "probe/bth"], "did you mean 'both'"),
        (["--algo.gamma", "0.9,x"], "algo.gamma must be a number, got 'x'"),
        (["--algo.gamma"], "--algo.gamma needs a value, or several with commas"),
        (["--algo.gamma=0.9", "--algo.gamma=0.8"], "--algo.gamma is given twice"),
        (["--algo.gamma=0.9", "--", "--algo.gamma=0.8"], "--algo.gamma is set by --algo.gamma"),
        (["--config", "nowhere.json"], "nowhere.json cannot be read"),
        (["--", "--overwrite"], "--overwrite is an option of hadamard train alone"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--retries", "-1"], "--retries must not be negative"),
        (["--address", "here:1"], "add --launcher ray"),
        (["--launcher", "ray", "--address", "nowhere"], "--address must be host:port"),
        (["--launcher", "slurm"], "there is no Slurm here"),
    ],
)
def test_wrong_options_are_reported_before_any_run(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    more = [] if "--envs" in words else ["--envs", "probe/both"]
    # A dry run does not connect to a cluster, and refuses everything else as a sweep does.
    for dry in ([],) if "--launcher" in words else ([], ["--dry-run"]):
        assert main(["sweep", "dqn", "--folder", str(tmp_path / "runs"), *more, *dry, *words]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))


def test_a_sweep_over_values_and_a_file_is_told_apart_by_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    settings = {"env": "probe/both", "train": {"steps": 300, "tensorboard": False}}
    settings |= {"net": {"width": 16}, "algo": {"learning_starts": 40, "replay_capacity": 200}}
    file.write_text(json.dumps(settings))
    words = ["sweep", "dqn", "--config", str(file), "--variants", "baseline", "--seeds", "1"]
    words += ["--folder", str(tmp_path / "runs"), "--algo.learning-rate", "1e-3,3e-4"]
    assert main([*words, "--", "--train.log-every", "100"]) == 0
    assert capsys.readouterr().out.endswith("2 finished\n")
    spec = Run(tmp_path / "runs" / "dqn_probe-both_baseline_learning_rate-0.001_seed0").config
    assert (spec["spec"]["net"]["width"], spec["spec"]["train"]["log_every"]) == (16, 100)
    runs, troubles = gather([tmp_path / "runs"])
    assert not troubles
    assert sorted(run.label for run in runs) == [
        "ReLU, algo.learning_rate 0.0003",
        "ReLU, algo.learning_rate 0.001",
    ]
