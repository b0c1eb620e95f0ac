"""`--no-fleet` and `--seeds` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hadamard.cli import main
from hadamard.core.run import Run
from hadamard.training import fit, start
from tests.support.commands import Command
from tests.support.sweep import stacked_job, stacked_words, stream_contents

CONTRADICTION = "--no-fleet and --train.fleet on contradict each other: leave one out"


def words(folder: Path, *more: str) -> list[str]:
    """Return the command that trains small runs, without a form of its own."""
    settings = stacked_words()
    form = settings.index("--train.fleet")
    return [
        "train",
        "pqn",
        *settings[:form],
        *settings[form + 2 :],
        "--run-dir",
        str(folder),
        *more,
    ]


def form(path: Path) -> str:
    fleet: str = Run(path).config["spec"]["train"]["fleet"]
    return fleet


def test_seeds_are_one_fleet(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    build = fit.Fleet

    def counted(trainers: list[start.Trainer], *others: Any) -> fit.Fleet:
        sizes.append(len(trainers))
        return build(trainers, *others)

    monkeypatch.setattr(fit, "Fleet", counted)
    result = command(*words(tmp_path / "on", "--seeds", "3", "--train.fleet", "on"))
    assert (result.code, sizes) == (0, [3])
    paths = [tmp_path / "on" / f"seed{seed}" for seed in range(3)]
    assert [form(path) for path in paths] == ["on"] * 3
    alone = stacked_job(tmp_path, 2, "alone")
    start.train("pqn", alone.spec)
    assert sizes == [3, 1]
    assert stream_contents(paths[2]) == stream_contents(alone.path)


def test_no_fleet_is_short_for_train_fleet_off(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    until = ("--train.until", "16")
    for name, more in (("short", ["--no-fleet"]), ("long", ["--train.fleet", "off"])):
        assert command(*words(tmp_path / name, *more, *until)).code == 0
        assert form(tmp_path / name) == "off"
    assert stream_contents(tmp_path / "short") == stream_contents(tmp_path / "long")
    refused = command(*words(tmp_path / "new", "--no-fleet", "--train.fleet", "on"))
    assert (refused.code, refused.err) == (2, f"hadamard: {CONTRADICTION}\n")
    sweep = ["sweep", "pqn", "--seeds", "1", "--folder", str(tmp_path / "sweep"), "--dry-run"]
    for line in (
        [*sweep, "--no-fleet", "--", "--train.fleet", "on"],
        [*sweep, "--", "--no-fleet", "--train.fleet", "on"],
    ):
        assert main(line) == 2
        assert CONTRADICTION in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    for name in (("train",), ("train", "pqn"), ("sweep",), ("reproduce",)):
        text = " ".join(command(*name, "--help").out.replace("│", " ").split())
        assert "--no-fleet" in text
        assert "short for --train.fleet off" in text


def test_settings_that_cannot_be_a_fleet_are_refused(tmp_path: Path, command: Command) -> None:
    for more, reason in (
        (["--train.greedy-envs", "0", "--train.eval-every", "64"], "--train.eval-every 64 plays"),
        (["--env", "probe/both"], "probe/both is not played on the device"),
    ):
        result = command(*words(tmp_path / "run", "--train.fleet", "on", *more))
        assert result.code == 2
        assert f"hadamard: --train.fleet on is not possible: {reason}" in result.err
    assert not (tmp_path / "run").exists()
