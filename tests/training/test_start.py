"""Runs of other versions and protocols, and damaged checkpoints, are read or refused."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hadamard import cli
from hadamard.core import checkpoint
from hadamard.core.run import Run
from hadamard.training import start
from tests.support.resume import assert_same_run, resumed, until, words


def test_a_run_of_another_protocol_is_not_carried_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    assert cli.main(words("dqn", path, **{"--train.until": 205})) == 0
    config = json.loads((path / "config.json").read_text())
    config["protocol"] = 1
    (path / "config.json").write_text(json.dumps(config))
    for saved in (path / "checkpoints").glob("step-*"):  # as earlier versions wrote them
        digests = json.loads((saved / "manifest.json").read_text())["files"]
        (saved / "manifest.json").write_text(json.dumps(digests))
    assert cli.main(["train", "--resume", str(path)]) == 0  # it is finished
    assert until(path, 300) == 2
    assert "was trained under protocol 1 and this version of hadamard trains under 2" in (
        capsys.readouterr().err
    )
    assert Run.open(path).done is not None
    assert cli.main(["evaluate", str(path), "--episodes", "1"]) == 0
    assert cli.main(["analyze", str(path)]) == 0


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
        one_step = start.Trainer.one_step

        def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
            yield from one_step(self, *stopping)
            if self.step == 400:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(start.Trainer, "one_step", stepping)
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
    path, one_step = tmp_path / "run", start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", stepping)
        assert cli.main(words("ppo", path)) == 75
    (only,) = path.glob("checkpoints/step-*")
    (only / "state.json").write_text("")
    capsys.readouterr()
    assert cli.main(["train", "--resume", str(path)]) == 2
    message = capsys.readouterr().err
    assert "nothing to resume from" in message
    assert str(only) in message


def test_weights_of_another_order_are_not_read(
    whole: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = Run.open(whole("ppo")).config
    del values["format"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    for command in (["train", "--resume"], ["evaluate"]):
        assert cli.main([*command, str(tmp_path)]) == 2
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
    _, _, spec = start.open_run(str(tmp_path))
    assert not hasattr(spec.train, "exact_resume")
    assert spec.algo == start.open_run(str(whole("ppo")))[2].algo
