"""Commands that repeat runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.support.runs import write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import load
from hadamard.report.pages.run_settings import command


def test_commands_name_what_differs_from_the_defaults(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", seed=3, layer="hadamard", env="odd name/x", redo=True)
    (run,) = load([folder])
    head = "hadamard train pqn --env 'odd name/x' --seed 3"
    assert command(run) == (
        f"{head} --algo.q-lambda 0.65 --algo.learning-rate 0.001 --algo.hidden 64 64 "
        "--net.layer hadamard --net.activation tanh --net.norm none --net.width 4 "
        "--train.steps 1000 --remedy redo --redo.tau 0.025"
    )
    default = json.loads((folder / "config.json").read_text())["spec"]
    default["net"]["layer"] = "plain"
    default["train"]["tensorboard"] = False
    default["algo"]["hidden"] = (64, 64)  # as a dataclass has it
    assert command(run, default) == f"{head} --net.layer hadamard --train.tensorboard"
    default["train"]["tensorboard"] = True
    assert command(run, default) == f"{head} --net.layer hadamard"
    assert shlex.split(command(run))[4] == "odd name/x"
