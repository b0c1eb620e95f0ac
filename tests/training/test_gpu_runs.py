"""Runs that a GPU wrote go on, play and are diagnosed on a computer without one.

``tests/data/gpu_runs.tar.xz`` holds three runs that an NVIDIA H200 stopped half-way
(``--train.until``): of DQN and PQN with compiled and captured updates, and of DQN in the form of a
fleet.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard.core import checkpoint
from hadamard.core.run import Run
from hadamard.training import start
from tests.support.commands import Command
from tests.support.paths import ROOT

RUNS = {"dqn": (1_500, 3_000), "dqn_fleet": (2_000, 3_000), "pqn": (20_480, 40_960)}
"""The steps that each was trained for, and is planned for."""
STREAMS = ("episodes", "train", "eval", "health", "kde")


@pytest.fixture
def gpu_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with tarfile.open(ROOT / "tests" / "data" / "gpu_runs.tar.xz") as archive:
        archive.extractall(tmp_path / "runs", filter="data")
    return tmp_path / "runs"


@pytest.mark.parametrize("name", RUNS)
def test_a_gpu_wrote_it(name: str, gpu_runs: Path) -> None:
    assert json.loads((gpu_runs / name / "config.json").read_text())["machine"] == "NVIDIA H200"


@pytest.mark.parametrize("name", RUNS)
def test_it_goes_on_to_its_end(name: str, gpu_runs: Path, command: Command) -> None:
    run = Run.open(gpu_runs / name)
    stopped, planned = RUNS[name]
    before = {stream: list(run.rows(stream)) for stream in STREAMS}
    assert run.done is not None
    assert run.done["steps"] == stopped
    assert command("train", "--resume", run.path, "--until", "0").code == 0
    assert run.done["steps"] >= planned
    for stream, rows in before.items():
        after = list(run.rows(stream))
        kept = [row for row in rows if row["step"] <= stopped]
        assert after[: len(kept)] == kept
    steps = [row["step"] for row in run.rows("train")]
    assert steps == sorted(set(steps))
    assert steps[-1] >= planned
    assert steps[0] < stopped


@pytest.mark.parametrize("name", RUNS)
def test_everything_that_was_saved_is_loaded(name: str, gpu_runs: Path) -> None:
    _, saved = checkpoint.read(checkpoint.newest(gpu_runs / name / "checkpoints"))
    stopped, planned = RUNS[name]
    with start.resumed_trainer(str(gpu_runs / name), planned) as trainer:
        assert trainer.step == stopped
        assert trainer.device.type == "cpu"
        names = trainer.parts.keys() & {"agent.network", "agent.target", "agent.optimizer"}
        loaded = {part: trainer.parts[part].state_dict() for part in names}
    assert len(loaded) >= 2
    for part, state in loaded.items():
        ours, theirs = dict(tensors(state)), dict(tensors(saved[part]))
        assert ours.keys() == theirs.keys()
        for place, tensor in ours.items():
            assert tensor.device.type == "cpu"
            assert torch.equal(tensor.double(), theirs[place].double()), f"{part}{place}"


def tensors(value: Any, place: str = "") -> list[tuple[str, Tensor]]:
    """All tensors of a state, with their places."""
    if isinstance(value, Tensor):
        return [(place, value)]
    items = dict(enumerate(value)) if isinstance(value, list) else value
    items = items.items() if isinstance(items, dict) else ()
    return [found for key, item in items for found in tensors(item, f"{place}/{key}")]


@pytest.mark.parametrize("name", RUNS)
def test_it_plays_and_is_diagnosed(name: str, gpu_runs: Path, command: Command) -> None:
    assert command("evaluate", gpu_runs / name, "--episodes", "2").code == 0
    result = command("analyze", gpu_runs / name, "--samples", "64")
    assert result.code == 0
    assert "dormant" in result.out
