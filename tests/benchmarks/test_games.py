"""The speed of the games that are tensor programs."""

from __future__ import annotations

import sys

import pytest

from hadamard.envs.minatar_tensors import tasks
from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import bench_games


def test_the_speed_of_every_game_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_games", "--games", "2", "--seconds", "0.001"])
    bench_games.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(tasks())
    assert all(float(line.split()[1].replace(",", "")) > 0 for line in lines[1:])
