"""Signals that ask to stop, in every phase of every command: what is saved, and the exit code."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from tests.support.commands import Command, checkpoint_names, flags
from tests.support.resume import assert_same_run

# Runs the command line, which sends itself a signal in the middle of a phase, several times.
DRIVER = """
import importlib, os, sys
from hadamard import cli

phase, number, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv = ["hadamard", *sys.argv[4:]]

def send():
    global phase
    phase = ""
    for _ in range(times):
        os.kill(os.getpid(), number)

def sends_before(module, name, when=lambda *_: True):
    owner = importlib.import_module(module)
    *classes, name = name.split(".")
    for part in classes:
        owner = getattr(owner, part)
    function = getattr(owner, name)
    def patched(*arguments, **options):
        if phase and when(*arguments):
            send()
        return function(*arguments, **options)
    setattr(owner, name, patched)

class TorchImport:
    def find_spec(name, path=None, target=None):
        if phase and name == "torch":
            send()

within = []

def around(name, condition):
    from hadamard.training.trainer import Trainer
    function = getattr(Trainer, name)
    def patched(trainer):
        within[:] = [condition(trainer)]
        function(trainer)
        within[:] = []
    setattr(Trainer, name, patched)

if phase == "start":
    sends_before("hadamard.core.renamed", "words")
elif phase == "imports":
    sys.meta_path.insert(0, TorchImport)
elif phase == "building":
    sends_before("hadamard.training.setup", "make_agent")
elif phase in ("first evaluation", "evaluation"):
    around("evaluate", lambda trainer: (trainer.step > 0) == (phase == "evaluation"))
    sends_before("hadamard.training.evaluate", "GreedyPlay.receive", lambda *_: any(within))
elif phase == "training":
    sends_before("hadamard.training.trainer", "Trainer.observe", lambda trainer: trainer.step > 99)
elif phase == "checkpoint":
    around("save", lambda trainer: True)
    sends_before("os", "fsync", lambda *_: any(within))
elif phase == "end":
    sends_before("hadamard.core.run", "Run.finish")
elif phase == "closing":
    sends_before("hadamard.training.setup", "Setup.close")
else:
    module, _, name = phase.partition(":")
    sends_before(module, name)
cli.program()
"""

OPTIONS = {
    "--env": "probe/both",
    "--net.width": 8,
    "--train.steps": 300,
    "--train.log-every": 50,
    "--train.health-every": 100,
    "--train.health-samples": 32,
    "--train.checkpoint-every": 110,
    "--train.eval-every": 130,
    "--train.eval-episodes": 4,
    "--algo.learning-starts": 40,
    "--algo.replay-capacity": 200,
    "--device": "cpu",
}


def train(path: Path) -> list[str]:
    return ["train", "dqn", *flags({**OPTIONS, "--run-dir": path}), "--train.no-tensorboard"]


def signaled(phase: str, number: int, times: int, words: list[str]) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER, phase, str(int(number)), str(times), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "ignored" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hadamard import cli

    path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert cli.main(train(path)) == 0
    return path


@pytest.mark.parametrize(
    ("phase", "number", "times"),
    [
        ("start", signal.SIGTERM, 1),
        ("start", signal.SIGINT, 5),
        ("imports", signal.SIGHUP, 1),
        ("imports", signal.SIGINT, 5),
        ("building", signal.SIGTERM, 3),
    ],
)
def test_before_the_run_folder_exists_there_is_nothing_to_save(
    phase: str, number: int, times: int, tmp_path: Path
) -> None:
    code, out, err = signaled(phase, number, times, train(tmp_path / "run"))
    assert (code, out, err) == (128 + number, "", "hadamard: stopped: nothing to save\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGTERM, 1), (signal.SIGHUP, 2), (signal.SIGINT, 5)]
)
def test_stopped_in_the_first_evaluation_a_run_starts_over(
    number: int, times: int, tmp_path: Path, undisturbed: Path, command: Command
) -> None:
    path = tmp_path / "run"
    code, out, err = signaled("first evaluation", number, times, train(path))
    assert (code, err) == (INTERRUPTED, "")
    assert out.endswith(
        f"stopped: nothing new to save; continue with: hadamard train --resume {path}\n"
    )
    assert checkpoint_names(path) == []
    assert command("train", "--resume", path).code == 0
    assert_same_run(path, undisturbed)


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("training", signal.SIGHUP),
        ("evaluation", signal.SIGTERM),
        ("evaluation", signal.SIGHUP),
        ("checkpoint", signal.SIGTERM),
        ("checkpoint", signal.SIGINT),
    ],
)
def test_stopped_in_training_a_run_is_saved(
    phase: str, number: int, tmp_path: Path, undisturbed: Path, command: Command
) -> None:
    path = tmp_path / "run"
    code, out, err = signaled(phase, number, 1, train(path))
    assert (code, err) == (INTERRUPTED, "")
    assert out.endswith(f"stopped and saved; continue with: hadamard train --resume {path}\n")
    assert checkpoint_names(path)
    # A stop before the resumed run goes on leaves it as it is.
    code, _, err = signaled("imports", number, 1, ["train", "--resume", str(path)])
    assert (code, err) == (INTERRUPTED, "hadamard: stopped: nothing to save\n")
    assert command("train", "--resume", path).code == 0
    assert_same_run(path, undisturbed)


@pytest.mark.parametrize("phase", ["training", "evaluation", "checkpoint"])
def test_many_interrupts_end_at_once_and_leave_a_run_that_continues(
    phase: str, tmp_path: Path, undisturbed: Path, command: Command
) -> None:
    path = tmp_path / "run"
    code, _, err = signaled(phase, signal.SIGINT, 5, train(path))
    assert (code, err) == (130, "hadamard: interrupted at once, without saving\n")
    assert command("train", "--resume", path).code == 0
    assert_same_run(path, undisturbed)


@pytest.mark.parametrize("phase", ["end", "closing"])
def test_a_stop_at_the_very_end_comes_too_late(
    phase: str, tmp_path: Path, undisturbed: Path
) -> None:
    path = tmp_path / "run"
    code, out, err = signaled(phase, signal.SIGTERM, 2, train(path))
    assert (code, err) == (0, "")
    assert "done: 300 steps" in out
    assert_same_run(path, undisturbed)


def test_a_lost_terminal_stops_a_run_that_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = [*train(path), "--train.steps", "100000000"]
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "hadamard", *words])
    shown = b""
    while b"/s" not in shown:  # the speed, which is shown once training runs
        shown += os.read(terminal, 1_000)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == INTERRUPTED
    assert checkpoint_names(path)


def test_a_reader_that_goes_away_does_not_stop_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-m", "hadamard", *train(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"dqn on probe/both")
        process.stdout.close()
        assert process.wait(120) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert Run.open(path).done is not None


@pytest.mark.parametrize(
    ("words", "phase"),
    [
        (["sweep", "dqn", "--envs", "probe/both", "--seeds", "1"], "imports"),
        (
            ["sweep", "dqn", "--envs", "probe/both", "--seeds", "1"],
            "hadamard.experiments.sweep.launchers:check_jobs",
        ),
        (["demo", "--env", "probe/both"], "hadamard.experiments.demo:check_jobs"),
        (["reproduce", "all"], "hadamard.experiments.reproduce:plan"),
        (["bench", "--env", "probe/both"], "hadamard.training.trainer:Trainer.advance"),
        (["report", "runs", "-o", "page.html"], "start"),
        (["envs"], "imports"),
    ],
)
def test_other_commands_stop_cleanly(words: list[str], phase: str, tmp_path: Path) -> None:
    folder = {"sweep": ["--folder"], "demo": ["--output"], "reproduce": ["--folder"]}
    words += [word for flag in folder.get(words[0], []) for word in (flag, str(tmp_path / "out"))]
    code, _, err = signaled(phase, signal.SIGHUP, 2, words)
    assert (code, err) == (129, "hadamard: stopped: nothing to save\n")
    assert not (tmp_path / "out").exists()


def test_a_sweep_that_loses_its_terminal_saves_its_runs(tmp_path: Path) -> None:
    words = ["sweep", "dqn", "--envs", "probe/both", "--variants", "relu", "--seeds", "1"]
    words += ["--folder", str(tmp_path), "--", *flags(OPTIONS), "--train.no-tensorboard"]
    words[words.index("--env") : words.index("--env") + 2] = []
    words += ["--train.steps", "100000000"]
    command = [sys.executable, "-m", "hadamard", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"running" in line:
                break
        process.send_signal(signal.SIGHUP)
        process.stdout.close()
        assert process.wait(120) == INTERRUPTED
        assert process.stderr is not None
        assert b"stopping: waiting for the runs to save" in process.stderr.read()
