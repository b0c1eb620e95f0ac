"""The command line: help, messages, exit codes, and what is left behind when something fails."""

from __future__ import annotations

import ast
import dataclasses
import errno
import importlib.util
import inspect
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from hadamard import cli, progress, trackers, train, trainer
from hadamard.cli.train import spec_from
from hadamard.core import checkpoint, discover
from hadamard.core.config import NetSpec, RedoSpec, RunSpec, TrainSpec, overridden
from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.trained import load_agent

ALGORITHMS = discover.names("hadamard.algos")

SMALL = {
    "--env": "probe/both",
    "--net.width": 16,
    "--train.steps": 400,
    "--train.log-every": 50,
    "--train.health-every": 100,
    "--train.health-samples": 32,
    "--train.checkpoint-every": 100,
    "--train.greedy-envs": 0,
}
OWN = {
    "dqn": {"--algo.learning-starts": 40, "--algo.replay-capacity": 200},
    "mrq": {"--env": "probe/track", "--algo.random-steps": 200, "--algo.hidden-width": 8},
    "ppo": {"--algo.num-envs": 2, "--algo.rollout-steps": 16},
    "pqn": {"--algo.num-envs": 4, "--algo.rollout-steps": 4, "--algo.minibatches": 2},
    "simbav2": {
        "--env": "probe/track",
        "--algo.learning-starts": 100,
        "--algo.actor-width": 8,
        "--algo.batch-size": 16,
        "--algo.critic-blocks": 1,
    },
}


def spoken(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (name, str(value))]


def small(
    algorithm: str, path: Path, more: Mapping[str, Any] = {}, *, tensorboard: bool = False
) -> list[str]:
    options = {**SMALL, **OWN.get(algorithm, {}), "--run-dir": path, **more}
    mirror = "--train.tensorboard" if tensorboard else "--train.no-tensorboard"
    return ["train", algorithm, *spoken(options), mirror]


@dataclasses.dataclass
class Said:
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line here, as a person sees it: warnings are lines, and most are hidden."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str | Path) -> Said:
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            try:
                code = cli.main([str(word) for word in words])
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 1
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run


def kept(path: Path) -> list[str]:
    return sorted(found.name for found in path.glob("checkpoints/step-*"))


def test_the_overview_names_every_command(command: Command) -> None:
    for words in ([], ["--help"], ["-h"]):
        said = command(*words)
        assert (said.code, said.err) == (0, "")
        for name in ("train", "evaluate", "analyse", "envs", "algos"):
            assert re.search(rf"^  {name} +\w", said.out, re.MULTILINE)
    assert re.fullmatch(r"hadamard \d+\.\d+\.\d+\n", command("--version").out)


def fields(kind: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flag and explanation of each plain field of a settings class."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, words in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(words, ast.Expr):
            assert isinstance(field.target, ast.Name)
            name = field.target.id
            flag = name if name.endswith("_") else name.replace("_", "-")
            yield f"--{prefix}{flag}", ast.literal_eval(words.value)


SHARED = [
    *(pair for pair in fields(RunSpec) if pair[0] != "--algo"),
    *fields(NetSpec, "net."),
    *fields(TrainSpec, "train."),
    *fields(RedoSpec, "redo."),
]


def test_every_field_is_documented() -> None:
    for kind in (NetSpec, TrainSpec, RedoSpec):
        assert len(list(fields(kind))) == len(dataclasses.fields(kind))
    for name in ALGORITHMS:
        kind = discover.find("hadamard.algos", name, "algorithm").Config
        assert len(list(fields(kind))) == len(dataclasses.fields(kind))
    own = sum(len(dataclasses.fields(kind)) for kind in (NetSpec, TrainSpec, RedoSpec))
    assert len(SHARED) == own + len(("env", "seed", "run_dir", "device"))


def assert_explained(text: str, expected: list[tuple[str, str]]) -> None:
    for flag, explanation in expected:
        assert re.search(rf"{re.escape(flag)}[ ,]", text), flag
        assert " ".join(explanation.split()[:3]) in text, flag


def test_help_explains_every_field(command: Command) -> None:
    said = command("train", "--help")
    assert (said.code, said.err) == (0, "")
    assert_explained(said.out, SHARED)
    assert "--resume" in said.out
    assert "--algo.gamma" not in said.out
    for name in ALGORITHMS:
        assert re.search(rf"^  {name} +\w", said.out, re.MULTILINE)
        module = discover.find("hadamard.algos", name, "algorithm")
        own = command("train", name, "--help")
        assert (own.code, own.err) == (0, "")
        assert_explained(own.out, [*SHARED, *fields(module.Config, "algo.")])
    for name in ("evaluate", "analyse"):
        said = command(name, "--help")
        assert said.code == 0
        assert "The run folder" in said.out
    # Only the full report has intervals.
    plain, _, full = command("report", "--help").out.partition("Any other is a folder")
    assert "one plain page, with the range of the seeds" in plain
    assert "interval" not in plain
    assert "95 % intervals" in full


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_shared_flags_mean_the_same_everywhere(algorithm: str) -> None:
    asked = {
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
    for words in (spoken(asked), [f"{name}={value}" for name, value in asked.items()]):
        spec = spec_from(algorithm, words)
        assert (spec.env, spec.seed, spec.run_dir, spec.device) == tuple(asked.values())[:4]
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
        ("ppo --algo.num-envs 0", ["num_envs", "at least 1", "0"]),
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
        ("pqn --algo.lambda_ 3", ["--algo.lambda_ must lie in [0, 1], got 3"]),
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
    said = command("train", *words.split(), *spoken(rest))
    assert said.code == 2
    assert said.out == ""
    for fragment in fragments:
        assert fragment in said.err
    assert said.err.startswith("hadamard: ")
    assert said.err.count("\n") == 1
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["tarin"], "unknown command 'tarin'; did you mean 'train'?"),
        (["train", "--env", "minatar/breakout"], "say which algorithm first"),
        (["train", "--resume"], "usage: hadamard train --resume RUN"),
        (["train", "--resume", "nowhere"], "nowhere is not a run"),
        (["train", "--resume", "x", "--seed", "1"], "a run keeps its other settings"),
        (["train", "--resume", "--until", "5"], "usage: hadamard train --resume RUN"),
        (["train", "--resume", "x", "--until"], "--until must be a number of steps, got ''"),
        (["train", "--resume", "x", "--until=1e6"], "a number of steps, got '1e6'"),
        (["evaluate", "nowhere"], "nowhere is not a run"),
        (["analyse", "nowhere"], "nowhere is not a run"),
    ],
)
def test_a_wrong_command_is_one_line(
    words: list[str], fragment: str, command: Command, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    said = command(*words)
    assert (said.code, said.out) == (2, "")
    assert fragment in said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_flag_names_the_nearest(command: Command, tmp_path: Path) -> None:
    said = command("train", "dqn", "--trian.steps", "5", "--run-dir", tmp_path / "run")
    assert said.code == 2
    assert "--trian.steps" in said.err
    assert "--train.steps" in said.err
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_says_how_to_install_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "minatar" else find(name)
    )
    path = tmp_path / "run"
    said = command("train", "dqn", "--env", "minatar/breakout", "--run-dir", path)
    assert (said.code, said.out) == (2, "")
    assert "pip install 'hadamard-rl[minatar]'" in said.err
    assert said.err.count("\n") == 1
    assert not path.exists()
    said = command("envs")
    assert said.code == 0
    assert "not installed (minatar): pip install 'hadamard-rl[minatar]'" in said.out


def test_a_folder_in_use_names_its_process(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert command(*small("dqn", path)).code == 0
    (path / "DONE").unlink()
    holder = Run.open(path)
    holder.lock()
    said = command("train", "--resume", path)
    holder.close()
    assert (said.code, said.out) == (2, "")
    assert f"{path} is in use by process {os.getpid()}" in said.err
    assert said.err.count("\n") == 1
    assert command("train", "--resume", path).code == 0


def test_a_run_with_other_settings_is_refused_with_the_differences(
    command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    assert command(*small("dqn", path)).code == 0
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    said = command(*small("dqn", path, {"--net.layer": "crelu", "--seed": 3}))
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[1:] == [
        "  spec.net.layer: 'plain' there, 'crelu' asked for",
        "  spec.seed: 0 there, 3 asked for",
        "Choose another --run-dir.",
    ]
    said = command(*small("ppo", path))
    assert said.code == 2
    assert "  algorithm: 'dqn' there, 'ppo' asked for\n" in said.err
    said = command(*small("dqn", path))
    assert said.code == 2
    assert f"is finished with these very settings: go on with `hadamard train --resume {path}`" in (
        said.err
    )
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == files


def test_a_folder_that_is_no_run_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    said = command(*small("dqn", tmp_path))
    assert (said.code, said.out) == (2, "")
    assert "exists and is not a run" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_default_folder_is_named_after_the_settings(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "ppo", "--env", "probe/both", "--net.layer", "hadamard", "--seed", "5"]
    words += ["--redo.enabled", "--train.no-tensorboard"]
    few, more = ("--train.steps", "2048"), ("--train.steps", "3072", "--algo.gamma", "0.9")
    assert command(*words, *few).code == 0
    assert command(*words, *more).code == 0
    assert command(*words, *more, "--train.log-every", "512", "--train.health-every", "0").code == 0
    start = "ppo_probe-both_hadamard_relu_redo"
    named = {f"{start}_steps-2048_tensorboard-False_seed5"}
    named |= {f"{start}_gamma-0.9_steps-3072_tensorboard-False_seed5"}
    found = {path.name for path in Path("runs").iterdir() if kept(path)}
    assert named < found
    (summed,) = found - named  # too much to tell
    assert re.fullmatch(start + "_[0-9a-f]{8}_seed5", summed)


def test_a_short_run_is_diagnosed_at_its_end(command: Command, tmp_path: Path) -> None:
    words = ["train", "ppo", "--env", "probe/both", "--run-dir", str(tmp_path / "run")]
    assert command(*words, "--train.steps", "3072", "--train.no-tensorboard").code == 0
    (row,) = map(json.loads, (tmp_path / "run" / "health.jsonl").read_text().splitlines())
    assert (row["step"], row["observations"]) == (3072, 2048)


def test_no_more_workers_than_episodes_evaluate(command: Command, tmp_path: Path) -> None:
    words = ["train", "ppo", "--env", "probe/both", "--run-dir", str(tmp_path / "run")]
    words += ["--train.steps", "1024", "--train.no-tensorboard", "--train.health-every", "0"]
    words += [
        "--train.eval-every",
        "1024",
        "--train.eval-episodes",
        "2",
        "--train.eval-workers",
        "5",
    ]
    assert command(*words).code == 0
    rows = (tmp_path / "run" / "eval.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 0, 1024, 1024]


def test_plain_lines_where_there_is_no_terminal(command: Command, tmp_path: Path) -> None:
    said = command(*small("dqn", tmp_path / "run"))
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    assert "\r" not in said.out
    title, line, done = said.out.splitlines()
    assert title == f"dqn on probe/both: plain, relu, seed 0, cpu -> {tmp_path / 'run'}"
    assert re.fullmatch(
        r"400/400 steps · [\d,]+/s · score -?\d\.\d · dormant \d+\.\d% · rank \d+/16 · 0s left",
        line,
    )
    assert re.fullmatch(r"done: 400 steps, score -?\d\.\d\d \(last 100 episodes\), \d+s", done)


def test_a_live_line_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "120"}
    training = subprocess.Popen(
        [sys.executable, "-m", "hadamard.cli", *small("dqn", tmp_path / "run")],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        env=environment,
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            told += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert training.wait(60) == 0
    text = told.decode()
    assert "\r\x1b[2K" in text  # a line written over itself
    bar = re.sub(r"\x1b\[[\d;?]*\w", "", text)
    # Of a run that takes under 0.2 s no speed is shown.
    assert re.search(
        r"100% +([\d,]+ steps/s +)?score -?\d\.\d · dormant \d+\.\d% · rank \d+/16", bar
    )
    assert bar.rstrip().splitlines()[-1].startswith("done: 400 steps")


def test_the_live_line_always_arrives_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda: Console(file=screen, force_terminal=True, width=100)
    )
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    live = progress.LiveLine("title", 1_000, 200)
    live.update(400, {})  # too soon to show
    assert live.bar.tasks[0].completed == 200
    now = 101.0
    live.update(700, {"score": 1.0})
    assert live.bar.tasks[0].completed == 700
    assert live.bar.tasks[0].fields["rate"] == "500 steps/s"
    live.update(1_000, {"score": 2.0})  # at once, but the last
    live.close()
    assert live.bar.tasks[0].completed == 1_000
    assert live.bar.tasks[0].fields["rate"] == "500 steps/s"  # no time to measure another
    assert "score 2.0" in screen.getvalue()


def test_lines_come_now_and_then_and_once_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = progress.Lines("title", 1_000)
    lines.update(100, {})  # too soon
    now = 111.0
    lines.update(550, {"score": 1.0})
    for step in (1_000, 1_002, 1_004):  # the last rollout is finished
        lines.update(step, {"score": 2.0})
    assert capsys.readouterr().out.splitlines() == [
        "title",
        "550/1,000 steps · 50/s · score 1.0 · 9s left",
        "1,000/1,000 steps · 91/s · score 2.0 · 0s left",
    ]


def test_a_display_is_told_between_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, dict[str, Any]]] = []

    class Display(Quiet):
        def update(self, step: int, facts: dict[str, Any]) -> None:
            told.append((step, facts))

    monkeypatch.setattr(trainer, "SHOWN_EVERY", 0.0)
    changes = {"run_dir": str(tmp_path / "run"), "train.steps": 40, "train.log_every": 1_000}
    changes |= {"train.tensorboard": False, "algo.learning_starts": 30}
    train.train("dqn", overridden(train.default_spec("dqn", "probe/both"), changes), Display)
    assert [step for step, _ in told] == [*range(1, 41), 40]
    assert told[-1][1]["score"] is not None
    assert len((tmp_path / "run" / "train.jsonl").read_text().splitlines()) == 1  # at the end


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [("dqn", "minatar/breakout"), ("mrq", "dmc/walker-walk"), ("simbav2", "humanoid/h1-walk")],
)
def test_an_algorithm_has_an_environment_that_suits_it(algorithm: str, env: str) -> None:
    assert spec_from(algorithm, []) == train.default_spec(algorithm, env)


def test_a_second_interrupt_does_not_wait(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, finish = tmp_path / "run", train.Trainer.finish_step
    interrupts = 1

    def finishing(self: train.Trainer) -> None:
        finish(self)
        if self.step == 150:
            for _ in range(interrupts):
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "finish_step", finishing)
        said = command(*small("dqn", path))
        assert (said.code, said.err) == (75, "")
        assert kept(path) == ["step-000000000100", "step-000000000150"]
        interrupts = 2
        said = command(*small("dqn", tmp_path / "other"))
        assert said.code == 130
        assert said.err == "hadamard: interrupted at once, without saving\n"
        assert kept(tmp_path / "other") == ["step-000000000100"]
    assert signal.getsignal(signal.SIGINT) is before
    assert command("train", "--resume", path).code == 0
    assert command("train", "--resume", tmp_path / "other").code == 0


class Full:
    """A disk on which nothing more can be written after a number of files reached it."""

    def __init__(self, room: int) -> None:
        self.room, self.sync = room, os.fsync

    def __call__(self, descriptor: int) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.sync(descriptor)


@pytest.mark.parametrize("room", [0, 12, 25, 27, 29])
def test_a_full_disk_ends_the_run_and_not_its_checkpoints(
    room: int, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "run", tmp_path / "whole"
    full = Full(room)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        said = command(*small("dqn", path))
    assert full.room < 0
    assert said.code == 1
    assert said.err.startswith("hadamard: no space left on the disk")
    assert said.err.count("\n") == 1
    if room == 0:  # not even the settings: the same command starts the run
        assert command(*small("dqn", path)).code == 0
        return
    for name in kept(path):
        checkpoint.read(path / "checkpoints" / name)
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    assert command(*small("dqn", whole)).code == 0
    for stream in ("episodes", "train", "health", "kde"):
        assert list(Run.open(path).rows(stream)) == list(Run.open(whole).rows(stream))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_run_goes_on_when_there_is_space_again(command: Command, tiny_disk: Path) -> None:
    path, filler = tiny_disk / "run", tiny_disk / "filler"
    filler.write_bytes(bytes(900_000))
    # Each checkpoint takes a few tens of kilobytes.
    said = command(*small("dqn", path, {"--net.width": 64}))
    assert said.code == 1
    assert "no space left on the disk" in said.err
    assert "hadamard train --resume" in said.err
    filler.unlink()
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    steps = [row["step"] for row in Run.open(path).rows("train")]
    assert steps == list(range(50, 401, 50))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("health", [0, 50, 100])
def test_a_diverged_run_keeps_its_last_good_checkpoint(
    algorithm: str, health: int, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, finish = tmp_path / "run", train.Trainer.finish_step

    def finishing(self: train.Trainer) -> None:
        finish(self)
        if self.step >= 260:
            with torch.no_grad():
                next(self.agent.network.parameters()).fill_(torch.nan)

    monkeypatch.setattr(train.Trainer, "finish_step", finishing)
    said = command(*small(algorithm, path, {"--train.health-every": health}))
    good = kept(path)
    assert len(good) == 2
    assert said.code == 1
    assert said.err.startswith(f"hadamard: {algorithm} diverged: ")
    assert said.err.count("\n") == 1
    assert f"the last good checkpoint is {path / 'checkpoints' / good[-1]}" in said.err
    assert "--algo.learning-rate" in said.err
    for name in good:
        step, state = checkpoint.read(path / "checkpoints" / name)
        assert step < 300
        assert all(weight.isfinite().all() for weight in state["agent.network"].values())
    assert not (path / "DONE").exists()


def test_a_loss_that_is_not_finite_stops_the_run(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run"
    more = {"--algo.learning-rate": 1e30, "--algo.learning-starts": 150}
    said = command(*small("dqn", path, more))
    assert said.code == 1
    assert "dqn diverged" in said.err
    assert kept(path) == ["step-000000000100"]
    assert "step-000000000100" in said.err
    said = command(*small("dqn", tmp_path / "other", {"--algo.learning-rate": 1e30}))
    assert said.code == 1
    assert "no checkpoint was written" in said.err


def test_a_mirror_that_fails_does_not_stop_training(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, folder: Path, step: int) -> None:
            pass

        def add(self, values: Mapping[str, float], step: int) -> None:
            if step >= 200:
                raise OSError("the disk of the mirror is gone")

        def close(self) -> None:
            pass

    monkeypatch.setattr(trackers, "TensorBoard", Broken)
    said = command(*small("dqn", tmp_path / "run", tensorboard=True))
    assert said.code == 0
    warning = "hadamard: warning: Broken is off from step 200: the disk of the mirror is gone\n"
    assert said.err == warning
    assert len(list(Run.open(tmp_path / "run").rows("train"))) == 8

    def refuse(folder: Path, step: int) -> None:
        raise RuntimeError("no mirror today")

    monkeypatch.setattr(trackers, "TensorBoard", refuse)
    said = command(*small("dqn", tmp_path / "other", tensorboard=True))
    assert said.code == 0
    assert said.err == "hadamard: warning: training goes on without a mirror: no mirror today\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_scalars(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "run"
    assert command(*small("dqn", path, tensorboard=True)).code == 0
    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()

    def scalars(name: str) -> dict[int, float]:
        return {event.step: event.value for event in events.Scalars(name)}

    rows = list(Run.open(path).rows("train"))
    for key in ("score", "loss", "value", "epsilon", "episodes"):
        expected = {row["step"]: row[key] for row in rows if key in row}
        assert scalars(f"train/{key}") == pytest.approx(expected, rel=1e-6)
    for row in Run.open(path).rows("health"):
        (layer,) = row["layers"]
        shown = scalars(f"health/{layer['name']}/effective_rank")
        assert shown[row["step"]] == layer["effective_rank"]
    assert len(shown) == 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "finished"
    words = small("dqn", path, {"--train.steps": 1_500, "--algo.epsilon-steps": 500})
    assert cli.main([*words, "--algo.learning-rate", "0.003", "--net.layer", "hadamard"]) == 0
    return path


def test_evaluate_plays_whole_greedy_games(finished: Path, command: Command) -> None:
    said = command("evaluate", finished, "--episodes", "30")
    assert (said.code, said.err) == (0, "")
    # The task is learned by then: every greedy game scores 1.
    assert said.out == (
        f"{finished} at step 1,500: 1.00 ± 0.00 (sd) over 30 greedy episodes of probe/both "
        "(min 1, median 1, max 1)\n"
    )
    assert "over 1 greedy episodes" in command("evaluate", finished, "--episodes", "1").out
    said = command("evaluate", finished, "--episodes", "0")
    assert said.code == 2
    assert "--episodes must be at least 1, got 0" in said.err


def test_evaluate_loads_the_networks_of_the_run(finished: Path) -> None:
    agent, spec, step, _ = load_agent(str(finished), "cpu")
    assert step == 1_500
    assert spec.net.layer == "hadamard"
    _, state = checkpoint.read(checkpoint.newest(finished / "checkpoints"))
    saved = state["agent.network"]
    assert isinstance(agent.network, nn.Module)
    for name, weight in agent.network.state_dict().items():
        assert torch.equal(weight, saved[name])


def test_analyse_diagnoses_all_hidden_layers(
    finished: Path, command: Command, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    files = {file: file.read_bytes() for file in finished.rglob("*") if file.is_file()}
    said = command("analyse", finished, "--output", page, "--samples", "200")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"{finished} at step 1,500\n")
    assert said.out.endswith(f"wrote {page}\n")
    for layer in ("encoder.hidden.0", "encoder.hidden.1"):
        assert layer in said.out
        assert layer in page.read_text()
    assert "<html" in page.read_text()
    assert {file: file.read_bytes() for file in finished.rglob("*") if file.is_file()} == files
    for samples in ("0", "1", "-3"):
        said = command("analyse", finished, "--samples", samples)
        assert (said.code, said.out) == (2, "")
        assert said.err == f"hadamard: --samples must be at least 2, got {samples}\n"


def test_a_run_that_was_moved_is_used_where_it_is(command: Command, tmp_path: Path) -> None:
    first, path = tmp_path / "first", tmp_path / "moved"
    assert command(*small("dqn", first, {"--algo.replay-storage": "disk"})).code == 0
    first.rename(path)
    (path / "DONE").unlink()
    for words in (["evaluate", path], ["analyse", path], ["train", "--resume", path]):
        assert command(*words).code == 0
        assert not first.exists()


def test_evaluating_a_run_without_a_checkpoint_says_so(
    finished: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((finished / "config.json").read_bytes())
    for name in ("evaluate", "analyse"):
        said = command(name, tmp_path)
        assert (said.code, said.out) == (2, "")
        assert "there is no whole checkpoint in" in said.err
        assert said.err.count("\n") == 1


def test_envs_and_algos_list_what_there_is(command: Command) -> None:
    said = command("envs")
    assert (said.code, said.err) == (0, "")
    for name in ("minatar/breakout", "probe/both", "atari/Pong"):
        assert re.search(rf"\b{name}\b", said.out)
    said = command("algos")
    assert (said.code, said.err) == (0, "")
    assert [line.split()[0] for line in said.out.splitlines()] == list(ALGORITHMS)
    for name in ("envs", "algos"):
        assert command(name, "--help").code == 0
        assert command(name, "surplus").code == 2


def test_a_dead_environment_worker_ends_the_run_clearly(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, finish = tmp_path / "run", train.Trainer.finish_step
    seen: list[int] = []

    def finishing(self: train.Trainer) -> None:
        if self.step == 240:
            seen.extend(process.pid for process in self.envs._processes)
            os.kill(seen[1], signal.SIGKILL)
        finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "finish_step", finishing)
        said = command(*small("pqn", path, {"--train.env-workers": 2}))
    assert len(seen) == 2
    assert said.code == 1
    assert said.err == (
        "hadamard: worker 1 (of 2; environments 2 to 3 of probe/both) died with exit code -9\n"
    )
    for process in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert kept(path)
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    assert [row["step"] for row in Run.open(path).rows("train")] == [
        52, 100, 152, 200, 252, 300, 352, 400
    ]  # fmt: skip


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m hadamard.cli envs | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("atari: ")
    assert done.stderr == ""
