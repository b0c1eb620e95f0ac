"""Runs that end early are carried on to another end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hadamard import cli
from hadamard.core.run import Run
from tests.support.resume import STEPS, assert_same_run, killed, until, words


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
    for steps, message in (
        (204, "--until 204 is less than the 205 steps"),
        (701, "--until 701 is beyond the 700 steps"),
        (-1, "--until must not be negative, got -1"),
    ):
        capsys.readouterr()
        assert until(path, steps) == 2
        assert message in capsys.readouterr().err
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == files
    assert until(whole("dqn"), 300) == 2  # finished, and further than that
    assert "--until 300 is less than the 700 steps" in capsys.readouterr().err
