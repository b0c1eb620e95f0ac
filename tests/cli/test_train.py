"""The command that trains: its flags, its messages, and what it leaves behind."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from hadamard.cli.train import spec_from
from hadamard.core import discover
from hadamard.core.run import Run
from hadamard.training import start
from tests.support.commands import Command, checkpoint_names, flags, small

ALGORITHMS = discover.names("hadamard.algos")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_shared_flags_mean_the_same_everywhere(algorithm: str) -> None:
    options = {
        "--env": "minatar/seaquest",
        "--seed": 7,
        "--run-dir": "somewhere",
        "--device": "cpu",
        "--train.steps": 12_345,
        "--train.health-every": 5_000,
        "--net.layer": "hadamard",
        "--net.activation": "tanh",
        "--net.norm": "layer_map",
        "--net.width": 33,
    }
    for words in (flags(options), [f"{name}={value}" for name, value in options.items()]):
        spec = spec_from(algorithm, words)
        assert (spec.env, spec.seed, spec.run_dir, spec.device) == tuple(options.values())[:4]
        assert (spec.train.steps, spec.train.health_every) == (12_345, 5_000)
        net = spec.net
        assert (net.layer, net.activation, net.norm) == ("hadamard", "tanh", "layer_map")
        assert net.width == 33


def test_a_suites_defaults_come_with_its_name() -> None:
    assert spec_from("dqn", ["--env", "minatar/breakout"]).algo.learning_starts == 5_000
    assert spec_from("dqn", ["--env=atari/Pong"]).algo.learning_starts == 80_000
    assert spec_from("dqn", []).env == "minatar/breakout"
    flags = ["--algo.learning-starts", "9", "--env", "minatar/breakout"]
    assert spec_from("dqn", flags).algo.learning_starts == 9


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        ("dqm", ["unknown algorithm 'dqm'", "did you mean 'dqn'"]),
        ("dqn --env minatr/breakout", ["'minatr'", "did you mean 'minatar'"]),
        ("dqn --env minatar/brekout", ["'brekout'", "did you mean 'breakout'"]),
        ("dqn --env breakout", ["'breakout'", "suite/task"]),
        ("dqn --net.layer hadamar", ["'hadamar'", "did you mean 'hadamard'"]),
        ("dqn --net.activation tan", ["'tan'", "did you mean 'tanh'"]),
        ("dqn --device tpu", ["--device", "'tpu'", "cpu"]),
        ("dqn --device cuda:99", ["--device cuda:99"]),
        ("dqn --train.steps -5", ["--train.steps", "at least 1", "-5"]),
        ("dqn --train.health-every 10", ["--train.health-every 10", "raise the first"]),
        ("dqn --algo.replay-capacity 3", ["--algo.replay-capacity: 3 steps", "at least 4"]),
        ("ppo --algo.num-envs 0", ["--algo.num-envs must be at least 1, got 0"]),
        ("pqn --algo.minibatches 7", ["--algo.minibatches 7", "4096"]),
        ("dqn --algo.learning-rate -1", ["learning rate", "-1"]),
        ("dqn --train.env-workers 3", ["workers", "3"]),
        ("dqn --algo.batch-size 0", ["batch", "0"]),
        ("dqn --algo.update-period 0", ["update", "period", "0"]),
        ("dqn --algo.target-period 0", ["target", "period", "0"]),
        ("pqn --algo.minibatches 0", ["minibatches", "0"]),
        ("ppo --algo.rollout-steps 0", ["rollout", "steps", "0"]),
        ("ppo --algo.epochs 0", ["epochs", "0"]),
        ("dqn --algo.learning-starts 64", ["--train.steps 64", "--algo.learning-starts is 64"]),
        ("pqn --train.eval-every 32", ["--train.eval-every 32", "--train.greedy-envs 8"]),
        ("ppo --algo.minibatches 1024", ["--algo.minibatches 1024", "one transition"]),
        ("dqn --algo.gamma 2", ["--algo.gamma must lie in [0, 1], got 2"]),
        ("pqn --algo.q-lambda 3", ["--algo.q-lambda must lie in [0, 1], got 3"]),
        ("ppo --algo.clip -1", ["--algo.clip must be above 0, got -1"]),
        ("pqn --algo.max-grad-norm 0", ["--algo.max-grad-norm must be above 0, got 0"]),
        ("dqn --algo.learning-starts -10", ["--algo.learning-starts must not be negative"]),
    ],
)
def test_a_wrong_setting_is_one_line_and_leaves_nothing(
    words: str, fragments: list[str], command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    # Short, should it ever get as far as training.
    rest = {} if "--train.steps" in words else {"--train.steps": 64}
    rest |= {"--train.log-every": 64, "--run-dir": path}
    if words.startswith("dqn") and "--algo.learning-starts" not in words:
        rest["--algo.learning-starts"] = 8
    result = command("train", *words.split(), *flags(rest))
    assert result.code == 2
    assert result.out == ""
    for fragment in fragments:
        assert fragment in result.err
    assert result.err.startswith("hadamard: ")
    assert result.err.count("\n") == 1
    assert not path.exists()


def test_an_unknown_flag_names_the_nearest(command: Command, tmp_path: Path) -> None:
    result = command("train", "dqn", "--trian.steps", "5", "--run-dir", tmp_path / "run")
    assert result.code == 2
    assert "--trian.steps" in result.err
    assert "--train.steps" in result.err
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_says_how_to_install_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "minatar" else find(name)
    )
    path = tmp_path / "run"
    result = command("train", "dqn", "--env", "minatar/breakout", "--run-dir", path)
    assert (result.code, result.out) == (2, "")
    assert "pip install 'hadamard-rl[minatar]'" in result.err
    assert result.err.count("\n") == 1
    assert not path.exists()
    result = command("envs")
    assert result.code == 0
    assert "not installed (minatar): pip install 'hadamard-rl[minatar]'" in result.out


def test_a_folder_in_use_names_its_process(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert command(*small("dqn", path)).code == 0
    (path / "DONE").unlink()
    holder = Run.open(path)
    holder.lock()
    result = command("train", "--resume", path)
    holder.close()
    assert (result.code, result.out) == (2, "")
    assert f"{path} is in use by process {os.getpid()}" in result.err
    assert result.err.count("\n") == 1
    assert command("train", "--resume", path).code == 0


def test_a_run_with_other_settings_is_refused_with_the_differences(
    command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    assert command(*small("dqn", path)).code == 0
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    result = command(*small("dqn", path, {"--net.layer": "crelu", "--seed": 3}))
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[1:] == [
        "  spec.net.layer: 'plain' there, 'crelu' here",
        "  spec.seed: 0 there, 3 here",
        "Choose another --run-dir.",
    ]
    result = command(*small("ppo", path))
    assert result.code == 2
    assert "  algorithm: 'dqn' there, 'ppo' here\n" in result.err
    result = command(*small("dqn", path))
    assert result.code == 2
    assert "is finished with exactly these settings: continue it with " in result.err
    assert f"`hadamard train --resume {path}`" in result.err
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == files


def test_a_folder_that_is_no_run_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    result = command(*small("dqn", tmp_path))
    assert (result.code, result.out) == (2, "")
    assert "exists and is not a run" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_default_folder_is_named_after_the_settings(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "ppo", "--env", "probe/both", "--net.layer", "hadamard", "--seed", "5"]
    words += ["--remedy", "redo", "--train.no-tensorboard"]
    few, more = ("--train.steps", "2048"), ("--train.steps", "3072", "--algo.gamma", "0.9")
    assert command(*words, *few).code == 0
    assert command(*words, *more).code == 0
    assert command(*words, *more, "--train.log-every", "512", "--train.health-every", "0").code == 0
    prefix = "ppo_probe-both_hadamard_relu_redo"
    named = {f"{prefix}_steps-2048_tensorboard-False_seed5"}
    named |= {f"{prefix}_gamma-0.9_steps-3072_tensorboard-False_seed5"}
    folders = {path.name for path in Path("runs").iterdir() if checkpoint_names(path)}
    assert named < folders
    (shortened,) = folders - named  # too many settings for a name
    assert re.fullmatch(prefix + "_[0-9a-f]{8}_seed5", shortened)


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [("dqn", "minatar/breakout"), ("mrq", "dmc/walker-walk"), ("simbav2", "humanoid/h1-walk")],
)
def test_an_algorithm_has_an_environment_that_suits_it(algorithm: str, env: str) -> None:
    assert spec_from(algorithm, []) == start.default_spec(algorithm, env)
