"""A run that was killed and resumed is the run that was not, bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hadamard import cli, envs, train
from hadamard.core import checkpoint, discover
from hadamard.core.replay import Replay
from hadamard.core.run import Run
from hadamard.envs import minatar

ALGORITHMS = discover.names("hadamard.algos")
STREAMS = ("episodes", "train", "eval", "health", "kde")
STEPS = 700

# Every rhythm is out of step with every other.
SHARED = {
    "--net.width": 16,
    "--net.layer": "hadamard",
    "--train.steps": STEPS,
    "--train.log-every": 30,
    "--train.health-every": 130,
    "--train.health-samples": 64,
    "--train.checkpoint-every": 110,
}
OWN: dict[str, dict[str, Any]] = {
    "dqn": {
        "--algo.learning-starts": 100,
        "--algo.batch-size": 8,
        "--algo.replay-capacity": 150,
        "--algo.epsilon-steps": 500,
        "--algo.target-period": 70,
        "--redo.period": 20,
        "--redo.tau": 0.3,
    },
    "ppo": {
        "--algo.num-envs": 4,
        "--algo.rollout-steps": 16,
        "--algo.epochs": 2,
        "--train.env-groups": 2,
    },
    "pqn": {
        "--algo.num-envs": 4,
        "--algo.rollout-steps": 8,
        "--algo.minibatches": 4,
        "--train.greedy-envs": 2,
    },
    "simbav2": {
        "--algo.num-envs": 4,
        "--algo.learning-starts": 100,
        "--algo.batch-size": 16,
        "--algo.replay-capacity": 160,
        "--algo.actor-width": 8,
        "--algo.critic-blocks": 1,
        "--train.eval-every": 170,
        "--train.eval-episodes": 4,
    },
    "mrq": {
        "--algo.random-steps": 100,
        "--algo.batch-size": 8,
        "--algo.target-period": 35,
        "--algo.replay-capacity": 150,
        "--algo.hidden-width": 16,
        "--train.eval-every": 170,
        "--train.eval-episodes": 4,
    },
}


def env_of(algorithm: str) -> str:
    continuous = discover.find("hadamard.algos", algorithm, "").ACTIONS == "continuous"
    return "probe/track" if continuous else "minatar/breakout"


def words(algorithm: str, path: Path, env: str | None = None, **more: Any) -> list[str]:
    env = env or env_of(algorithm)
    options = {"--env": env, "--run-dir": path, **SHARED, **OWN.get(algorithm, {}), **more}
    spoken = [word for name, value in options.items() for word in (name, str(value))]
    spoken += ["--train.no-tensorboard"]
    return ["train", algorithm, *spoken, *(["--redo.enabled"] if algorithm == "dqn" else [])]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums depend on how they are split, and the subprocesses have one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Uninterrupted runs, each made once."""
    made: dict[str, Path] = {}

    def get(algorithm: str) -> Path:
        if algorithm not in made:
            path = tmp_path_factory.mktemp("whole") / algorithm
            assert cli.main(words(algorithm, path)) == 0
            made[algorithm] = path
        return made[algorithm]

    return get


# Runs the command line and sends itself a signal: after a step, or inside the n-th save.
DRIVER = """
import os, sys
from hadamard import cli, train
from hadamard.core import checkpoint

number, where, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
finish, sync, saves = train.Trainer.finish_step, checkpoint.sync_folder, []

def finishing(self):
    before = self.step
    finish(self)
    if where == "step" and before < count <= self.step:
        os.kill(os.getpid(), number)

def syncing(path):
    sync(path)
    if path.name.startswith(".part-"):
        saves.append(path)
        if where == "save" and len(saves) == count:
            os.kill(os.getpid(), number)

train.Trainer.finish_step, checkpoint.sync_folder = finishing, syncing
sys.exit(cli.main(sys.argv[4:]))
"""


def killed(number: int, where: str, count: int, spoken: list[str]) -> int:
    arguments = [str(int(number)), where, str(count), *spoken]
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode


def resumed(path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> int:
    """Resume in this process, which sends itself SIGTERM after a step."""
    finish = train.Trainer.finish_step

    def finishing(self: train.Trainer) -> None:
        before = self.step
        finish(self)
        if stop_at is not None and before < stop_at <= self.step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "finish_step", finishing)
        return cli.main(["train", "--resume", str(path)])


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}/{i}")
    elif isinstance(ours, Tensor):
        assert ours.dtype == theirs.dtype, where
        assert torch.equal(ours, theirs), where
    elif isinstance(ours, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, where)
    else:
        assert ours == theirs, where


def frames(path: Path, state: Any, env: envs.Envs) -> Tensor:
    """The whole ring of frames that a checkpoint's replay holds."""
    slots = state["usable"].numel()
    replay = Replay(env.spec, len(state["pushed"]), slots, torch.device("cpu"))
    replay.load_increment(path / "checkpoints" / "agent.replay", state)
    assert min(state["pushed"]) > slots  # it has come round
    return replay.frames


def assert_same_run(ours: Path, theirs: Path) -> None:
    for stream in STREAMS:
        files = [path / f"{stream}.jsonl" for path in (ours, theirs)]
        assert files[0].exists() == files[1].exists(), stream
        if files[0].exists():
            assert files[0].read_text().splitlines() == files[1].read_text().splitlines(), stream
    summaries = [Run.open(path).done for path in (ours, theirs)]
    for summary in summaries:
        assert summary is not None
        del summary["seconds"]
    assert summaries[0] == summaries[1]
    states = []
    for path in (ours, theirs):
        step, state = checkpoint.read(checkpoint.newest(path / "checkpoints"))
        if "agent.replay" in state:
            env = envs.make(Run.open(path).config["spec"]["env"], 0, 1)
            state["frames"] = frames(path, state["agent.replay"], env)
            env.close()
            del state["agent.replay"]["chunks"]  # how the frames are parted among files
        states.append({"step": step, **state})
    assert_same(states[0], states[1])


def test_the_runs_below_have_something_to_lose(whole: Callable[[str], Path]) -> None:
    for algorithm in ALGORITHMS:
        run = Run.open(whole(algorithm))
        steps = [row["step"] for row in run.rows("train")]
        assert steps == sorted(set(steps))
        assert steps[-1] >= STEPS
        assert len(list(run.rows("episodes"))) > 20
        assert len(list(run.rows("health"))) == STEPS // 130
        assert any("loss" in row for row in run.rows("train"))
    assert list(Run.open(whole("pqn")).rows("eval"))
    evaluated = [row["step"] for row in Run.open(whole("simbav2")).rows("eval")]
    assert evaluated == [step for step in (0, 172, 340, 512, 680) for _ in range(4)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_stopped_twice_and_resumed(
    algorithm: str,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance, path = random.Random(f"stop {algorithm}"), tmp_path / "run"
    first = chance.randrange(20, STEPS // 2)
    assert killed(signal.SIGTERM, "step", first, words(algorithm, path)) == 75
    stopped = checkpoint.newest(path / "checkpoints")
    assert first <= int(stopped.name.removeprefix("step-")) < STEPS // 2 + 100
    second = chance.randrange(STEPS // 2 + 100, STEPS - 70)
    assert resumed(path, monkeypatch, stop_at=second) == 75
    assert Run.open(path).done is None
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, whole(algorithm))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_killed_and_resumed_from_the_last_checkpoint(
    algorithm: str,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "run"
    # Late enough after a checkpoint that rows which it does not cover are on the disk.
    at = 110 * random.Random(f"kill {algorithm}").randrange(2, 5) + 95
    assert killed(signal.SIGKILL, "step", at, words(algorithm, path)) == -signal.SIGKILL
    saved = int(checkpoint.newest(path / "checkpoints").name.removeprefix("step-"))
    assert saved < max(row["step"] for row in Run.open(path).rows("train")) <= at
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, whole(algorithm))


@pytest.mark.parametrize("at", [29, 149, 690, 700])
def test_stopped_around_a_row_that_is_due(
    at: int,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The row tells of the last update, which may have been before the stop.
    path, algorithm = tmp_path / "run", "dqn"
    with monkeypatch.context() as patch:
        finish = train.Trainer.finish_step

        def finishing(self: train.Trainer) -> None:
            finish(self)
            if self.step == at:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(train.Trainer, "finish_step", finishing)
        assert cli.main(words(algorithm, path)) == 75
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, whole(algorithm))


@pytest.mark.parametrize(("where", "count"), [("step", 50), ("save", 1), ("save", 3)])
def test_killed_before_or_inside_a_save(
    where: str,
    count: int,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without any checkpoint yet, the run starts over.
    path = tmp_path / "run"
    assert killed(signal.SIGKILL, where, count, words("dqn", path)) == -signal.SIGKILL
    found = list(path.glob("checkpoints/step-*"))
    assert len(found) == (2 if (where, count) == ("save", 3) else 0)
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, whole("dqn"))
    assert not list(path.glob("checkpoints/.part-*"))


def test_killed_between_the_last_save_and_the_end(
    whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"

    def crash(run: Run, summary: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", crash)
        with pytest.raises(SystemExit):
            cli.main(words("dqn", path))
    assert Run.open(path).done is None
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, whole("dqn"))


def until(path: Path, steps: int) -> int:
    return cli.main(["train", "--resume", str(path), "--until", str(steps)])


@pytest.mark.parametrize("algorithm", ["dqn", "pqn", "simbav2"])
def test_ended_early_twice_and_carried_on_to_the_end(
    algorithm: str, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    # Neither end is one of a row or a checkpoint, or of a rollout.
    path = tmp_path / "run"
    assert cli.main(words(algorithm, path, **{"--train.until": 205})) == 0
    run = Run.open(path)
    first = run.done
    assert first is not None
    assert 205 <= first["steps"] < 205 + 32
    assert next(reversed(list(run.rows("train"))))["step"] == first["steps"]
    # Told again, it stays as it is.
    assert until(path, 205) == 0
    assert cli.main(["train", "--resume", str(path)]) == 0
    assert run.done == first
    assert until(path, 431) == 0
    assert run.config["spec"]["train"]["until"] == 431
    assert run.done is not None
    assert 431 <= run.done["steps"] < 431 + 32
    assert until(path, 0) == 0
    assert run.config["spec"]["train"]["until"] == 0
    assert_same_run(path, whole(algorithm))
    timed = [row["step"] for row in run.rows("timing")]
    assert timed == [row["step"] for row in run.rows("train")]


def test_an_interrupted_run_gets_another_end(
    whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    assert killed(signal.SIGTERM, "step", 150, words("pqn", path)) == 75
    assert until(path, 300) == 0
    assert Run.open(path).done is not None

    # The process ends after the settings are written and before DONE is removed.
    def crash(path: Path) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", crash)
        with pytest.raises(SystemExit):
            until(path, STEPS)
    assert Run.open(path).done is not None
    assert cli.main(["train", "--resume", str(path)]) == 0
    assert_same_run(path, whole("pqn"))


def test_an_end_that_cannot_be_is_refused(
    whole: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    assert cli.main(words("dqn", path, **{"--train.until": 205})) == 0
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for steps, told in (
        (204, "--until 204 is less than the 205 steps"),
        (701, "--until 701 is beyond the 700 steps"),
        (-1, "--until must not be negative, got -1"),
    ):
        capsys.readouterr()
        assert until(path, steps) == 2
        assert told in capsys.readouterr().err
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == files
    assert until(whole("dqn"), 300) == 2  # finished, and further than that
    assert "--until 300 is less than the 700 steps" in capsys.readouterr().err


def test_a_run_of_another_protocol_is_not_carried_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    assert cli.main(words("dqn", path, **{"--train.until": 205})) == 0
    config = json.loads((path / "config.json").read_text())
    config["protocol"] = 1
    (path / "config.json").write_text(json.dumps(config))
    assert cli.main(["train", "--resume", str(path)]) == 0  # it is finished
    assert until(path, 300) == 2
    assert "was trained under protocol 1 and this version of hadamard trains under 2" in (
        capsys.readouterr().err
    )
    assert Run.open(path).done is not None
    assert cli.main(["evaluate", str(path), "--episodes", "1"]) == 0
    assert cli.main(["analyse", str(path)]) == 0


def test_greedy_games_in_the_call_of_training_are_stopped_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = {"--train.greedy-call": "joined", "--train.env-groups": 2}
    assert cli.main(words("pqn", tmp_path / "whole", **joined)) == 0
    path = tmp_path / "run"
    assert killed(signal.SIGTERM, "step", 230, words("pqn", path, **joined)) == 75
    assert resumed(path, monkeypatch, stop_at=401) == 75
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, tmp_path / "whole")


def test_the_command_line_stops_and_goes_on_in_other_processes(
    whole: Callable[[str], Path], tmp_path: Path
) -> None:
    path, algorithm = tmp_path / "run", "ppo"
    command = [sys.executable, "-m", "hadamard.cli"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(
        [*command, *words(algorithm, path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    rows = path / "train.jsonl"
    while not (rows.exists() and rows.stat().st_size):
        assert training.poll() is None, training.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    training.terminate()
    told, trouble = training.communicate(timeout=60)
    assert trouble == ""
    if training.returncode == 0:
        pytest.fail("the run was over before it could be stopped: give it more steps")
    assert training.returncode == 75
    assert told.endswith(f"stopped and saved; go on with: hadamard train --resume {path}\n")
    again = subprocess.run(
        [*command, "train", "--resume", str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (again.returncode, again.stderr) == (0, "")
    assert "done: " in again.stdout
    assert_same_run(path, whole(algorithm))


def test_a_finished_run_stays_as_it_is(
    whole: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = whole("ppo")
    files = [file for file in path.rglob("*") if file.is_file()]
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}
    assert cli.main(["train", "--resume", str(path)]) == 0
    assert "done: " in capsys.readouterr().out
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files} == before


@pytest.mark.parametrize("damaged", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_replaced_by_the_one_before(
    damaged: str,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        finish = train.Trainer.finish_step

        def finishing(self: train.Trainer) -> None:
            finish(self)
            if self.step == 400:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(train.Trainer, "finish_step", finishing)
        assert cli.main(words("dqn", path)) == 75
    newest, older = sorted(path.glob("checkpoints/step-*"), reverse=True)
    assert (newest.name, older.name) == ("step-000000000400", "step-000000000330")
    data = bytearray((newest / damaged).read_bytes())
    data[len(data) // 2] ^= 255
    (newest / damaged).write_bytes(data)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # Stopped again before the step of the damaged one.
        assert resumed(path, monkeypatch, stop_at=360) == 75
    message = capsys.readouterr().err
    assert message.startswith("hadamard: warning: an older checkpoint is used: ")
    assert newest.name in message
    assert message.count("\n") == 1
    assert checkpoint.newest(path / "checkpoints").name == "step-000000000360"
    assert resumed(path, monkeypatch) == 0
    assert capsys.readouterr().err == ""
    assert_same_run(path, whole("dqn"))


def test_without_any_whole_checkpoint_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, finish = tmp_path / "run", train.Trainer.finish_step

    def finishing(self: train.Trainer) -> None:
        finish(self)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "finish_step", finishing)
        assert cli.main(words("ppo", path)) == 75
    (only,) = path.glob("checkpoints/step-*")
    (only / "state.json").write_text("")
    capsys.readouterr()
    assert cli.main(["train", "--resume", str(path)]) == 2
    message = capsys.readouterr().err
    assert "nothing to resume from" in message
    assert str(only) in message


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_runs_side_by_side_are_the_runs_they_would_be_alone(
    algorithm: str,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, finish = tmp_path / "runs", train.Trainer.finish_step

    def finishing(self: train.Trainer) -> None:
        finish(self)
        if self.spec.seed == 1 and self.step in range(300, 304):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "finish_step", finishing)
        assert cli.main(words(algorithm, folder, **{"--seeds": 2})) == 75
    paths = [str(folder / f"seed{seed}") for seed in range(2)]
    said = capsys.readouterr().out
    assert f"hadamard train --resume {' '.join(paths)}\n" in said
    assert cli.main(["train", "--resume", *paths]) == 0
    told = capsys.readouterr().out.splitlines()[-2:]
    assert [line.partition(": done")[0] for line in told] == paths
    assert_same_run(folder / "seed0", whole(algorithm))
    alone = tmp_path / "alone"
    assert cli.main(words(algorithm, alone, **{"--seed": 1})) == 0
    assert_same_run(folder / "seed1", alone)


def test_a_run_that_diverges_does_not_stop_those_beside_it(
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finish = train.Trainer.finish_step

    def finishing(self: train.Trainer) -> None:
        finish(self)
        if self.spec.seed and self.step > 300:
            with torch.no_grad():
                next(self.agent.network.parameters()).fill_(torch.nan)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "finish_step", finishing)
        assert cli.main(words("pqn", tmp_path, **{"--seeds": 3})) == 1
    said = capsys.readouterr().err
    assert said.count("pqn diverged") == 2
    assert f"{tmp_path / 'seed2'}" in said
    assert_same_run(tmp_path / "seed0", whole("pqn"))
    assert not (tmp_path / "seed1" / "DONE").exists()


def test_how_many_seeds_must_be_a_number_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words("dqn", tmp_path / "run", **{"--seeds": 0})) == 2
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


ATARI = {
    "--net.width": 8,
    "--train.steps": 130,
    "--train.log-every": 20,
    "--train.health-every": 50,
    "--train.health-samples": 16,
    "--train.checkpoint-every": 40,
    "--algo.learning-starts": 40,
    "--algo.replay-capacity": 60,
    "--algo.batch-size": 4,
    "--algo.update-period": 8,
    "--algo.epsilon-final": 1.0,
}


@pytest.mark.skipif(bool(envs.missing("atari")), reason="needs hadamard-rl[atari]")
@pytest.mark.parametrize("num_envs", [1, 2])
def test_atari_resumes_exactly(
    num_envs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {**ATARI, "--algo.num-envs": num_envs}
    spoken = {
        name: words("dqn", tmp_path / name, "atari/Breakout", **more) for name in ("whole", "run")
    }
    path = tmp_path / "run"
    assert cli.main(spoken["whole"]) == 0
    assert killed(signal.SIGKILL, "step", 77, spoken["run"]) == -signal.SIGKILL
    # On another machine: one worker for each of two games before, none now.
    monkeypatch.setattr(envs, "usable_cores", lambda: 0)
    assert resumed(path, monkeypatch, stop_at=103) == 75
    assert resumed(path, monkeypatch) == 0
    assert_same_run(path, tmp_path / "whole")


def test_a_compiled_run_is_killed_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, compiled = [tmp_path / "whole", tmp_path / "killed"], {"--train.compile": "on"}
    assert cli.main(words("dqn", paths[0], **compiled)) == 0
    assert killed(signal.SIGKILL, "step", 400, words("dqn", paths[1], **compiled)) == -9
    assert resumed(paths[1], monkeypatch) == 0
    assert_same_run(paths[1], paths[0])


class Inexact(minatar.MinAtarEnvs):
    """Environments that cannot be copied: their state is what seeds the next games."""

    exact = False
    begun = 0

    def reset(self) -> Tensor:
        self.begun += 1
        for index, game in enumerate(self._games):
            game.random.seed(100 * self.begun + index)
        return super().reset()

    def state_dict(self) -> dict[str, Any]:
        return {"begun": self.begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # type: ignore[override]
        self.begun = state["begun"]


def test_environments_that_cannot_be_copied_start_new_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    more = {"--algo.replay-capacity": 2_000, "--algo.num-envs": 2, "--train.steps": 300}
    monkeypatch.setattr(minatar, "MinAtarEnvs", Inexact)
    with monkeypatch.context() as patch:
        finish = train.Trainer.finish_step

        def finishing(self: train.Trainer) -> None:
            finish(self)
            if self.step == 178:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(train.Trainer, "finish_step", finishing)
        assert cli.main(words("dqn", path, **more)) == 75
    step, saved = checkpoint.read(checkpoint.newest(path / "checkpoints"))
    assert step == 178
    before = {stream: list(Run.open(path).rows(stream)) for stream in STREAMS}

    kept: dict[str, Any] = {}
    load = train.Trainer._load

    def loading(self: train.Trainer) -> None:
        load(self)
        for name in ("network", "target", "optimiser", "random", "luck", "counters"):
            restored = self.agent.parts[name].state_dict()
            assert_same({**restored}, saved[f"agent.{name}"], name)
        kept["trainer"], kept["begun"] = self, self.envs.begun
        kept["pushed"] = list(self.agent.replay.pushed)

    monkeypatch.setattr(train.Trainer, "_load", loading)
    assert resumed(path, monkeypatch) == 0
    assert kept["begun"] == saved["envs"]["begun"] + 1 == 2  # not the first games again
    replay, (cut, other) = kept["trainer"].agent.replay, saved["agent.replay"]["pushed"]
    assert kept["pushed"] == [cut + 1, other + 1]
    # The last state before the cut has no successor.
    assert torch.equal(replay.usable[0, :cut], saved["agent.replay"]["usable"][0, :cut])
    assert replay.usable[0, cut - 2 : cut + 2].tolist() == [True, False, True, True]
    rows = {stream: list(Run.open(path).rows(stream)) for stream in STREAMS}
    assert [row["step"] for row in rows["train"]] == [*range(30, 301, 30)]
    for stream in STREAMS:
        assert rows[stream][: len(before[stream])] == before[stream]


def test_weights_of_another_order_are_not_read(
    whole: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = Run.open(whole("ppo")).config
    del values["format"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    for words in (["train", "--resume"], ["evaluate"]):
        assert cli.main([*words, str(tmp_path)]) == 2
        assert "another version of hadamard" in capsys.readouterr().err


def test_a_run_of_another_version_is_not_resumed(
    whole: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = Run.open(whole("ppo")).config
    values["spec"]["net"]["depth"] = 3
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert cli.main(["train", "--resume", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "fields this version does not know: depth" in message
    assert message.count("\n") == 1


def test_a_retired_setting_of_an_older_run_is_left_out(
    whole: Callable[[str], Path], tmp_path: Path
) -> None:
    values = Run.open(whole("ppo")).config
    values["spec"]["train"]["exact_resume"] = True
    (tmp_path / "config.json").write_text(json.dumps(values))
    _, _, spec = train.open_run(str(tmp_path))
    assert not hasattr(spec.train, "exact_resume")
    assert spec.algo == train.open_run(str(whole("ppo")))[2].algo
