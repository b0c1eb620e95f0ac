"""A run that was killed and resumed is the run that was not, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard import cli, envs
from hadamard.core import checkpoint
from hadamard.core.run import Run
from hadamard.envs import minatar
from hadamard.training import start
from tests.support.resume import (
    ALGORITHMS,
    STEPS,
    STREAMS,
    assert_same,
    assert_same_run,
    killed,
    resumed,
    words,
)
from tests.support.sweep import SCRIPTED, wait_until


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
def test_stopped_around_a_log_row(
    at: int,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The row describes the last update, which may have been before the stop.
    path, algorithm = tmp_path / "run", "dqn"
    with monkeypatch.context() as patch:
        one_step = start.Trainer.one_step

        def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
            yield from one_step(self, *stopping)
            if self.step == at:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(start.Trainer, "one_step", stepping)
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
    saved = list(path.glob("checkpoints/step-*"))
    assert len(saved) == (2 if (where, count) == ("save", 3) else 0)
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
    command = [sys.executable, "-m", "hadamard"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTED)}
    script = path.with_name("run.script")
    script.write_text('{"step": 300, "action": "hold"}')
    training = subprocess.Popen(
        [*command, *words(algorithm, path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: path.with_name("run.held").exists() or training.poll() is not None)
    training.terminate()
    script.unlink()
    output, errors = training.communicate(timeout=600)
    assert (training.returncode, errors) == (75, "")
    assert output.endswith(f"stopped and saved; continue with: hadamard train --resume {path}\n")
    again = subprocess.run(
        [*command, "train", "--resume", str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
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
    commands = {
        name: words("dqn", tmp_path / name, "atari/Breakout", **more) for name in ("whole", "run")
    }
    path = tmp_path / "run"
    assert cli.main(commands["whole"]) == 0
    assert killed(signal.SIGKILL, "step", 77, commands["run"]) == -signal.SIGKILL
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
        one_step = start.Trainer.one_step

        def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
            yield from one_step(self, *stopping)
            if self.step == 178:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(start.Trainer, "one_step", stepping)
        assert cli.main(words("dqn", path, **more)) == 75
    step, saved = checkpoint.read(checkpoint.newest(path / "checkpoints"))
    assert step == 178
    before = {stream: list(Run.open(path).rows(stream)) for stream in STREAMS}

    restored_run: dict[str, Any] = {}
    load = start.Trainer._load

    def loading(self: start.Trainer) -> None:
        load(self)
        for name in ("network", "target", "optimizer", "random", "sampling_random", "counters"):
            restored = self.agent.parts[name].state_dict()
            assert_same({**restored}, saved[f"agent.{name}"], name)
        restored_run["trainer"], restored_run["begun"] = self, self.envs.envs.begun
        restored_run["pushed"] = list(self.agent.replay.pushed)

    monkeypatch.setattr(start.Trainer, "_load", loading)
    assert resumed(path, monkeypatch) == 0
    assert restored_run["begun"] == saved["envs"]["begun"] + 1 == 2  # not the first games again
    replay, (cut, other) = restored_run["trainer"].agent.replay, saved["agent.replay"]["pushed"]
    assert restored_run["pushed"] == [cut + 1, other + 1]
    # The last state before the cut has no successor.
    assert torch.equal(replay.usable[0, :cut], saved["agent.replay"]["usable"][0, :cut])
    assert replay.usable[0, cut - 2 : cut + 2].tolist() == [True, False, True, True]
    rows = {stream: list(Run.open(path).rows(stream)) for stream in STREAMS}
    assert [row["step"] for row in rows["train"]] == [*range(30, 301, 30)]
    for stream in STREAMS:
        assert rows[stream][: len(before[stream])] == before[stream]
