"""Runs of several seeds side by side are the runs they would be alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hadamard import cli
from hadamard.training import start
from tests.support.resume import ALGORITHMS, assert_same_run, words


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_runs_side_by_side_are_the_runs_they_would_be_alone(
    algorithm: str,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, one_step = tmp_path / "runs", start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        if self.spec.seed == 1 and self.step in range(300, 304):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", stepping)
        assert cli.main(words(algorithm, folder, **{"--seeds": 2})) == 75
    paths = [str(folder / f"seed{seed}") for seed in range(2)]
    message = capsys.readouterr().out
    assert f"hadamard train --resume {' '.join(paths)}\n" in message
    assert cli.main(["train", "--resume", *paths]) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert [line.partition(": done")[0] for line in lines] == paths
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
    one_step = start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        if self.spec.seed and self.step > 300:
            with torch.no_grad():
                next(self.agent.network.parameters()).fill_(torch.nan)

    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", stepping)
        assert cli.main(words("pqn", tmp_path, **{"--seeds": 3})) == 1
    message = capsys.readouterr().err
    assert message.count("pqn diverged") == 2
    assert f"{tmp_path / 'seed2'}" in message
    assert_same_run(tmp_path / "seed0", whole("pqn"))
    assert not (tmp_path / "seed1" / "DONE").exists()


def test_how_many_seeds_must_be_a_number_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words("dqn", tmp_path / "run", **{"--seeds": 0})) == 2
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err
    assert cli.main(words("dqn", tmp_path / "run", **{"--seeds": 10**9})) == 2
    assert "10,000 seeds are the most" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
