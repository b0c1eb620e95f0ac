"""Monitor writes a row when a diagnosis is due, and mirrors it to TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard import Monitor
from tests.support.health import sick_network


def train_for(steps: int, **options) -> tuple[Monitor, list[int]]:
    net, calls = sick_network(), []

    def batch() -> Tensor:
        calls.append(1)
        return torch.randn(50, 6)

    with Monitor(net, **options) as monitor:
        for _ in range(steps):
            monitor.step(batch)
    return monitor, calls


def test_monitor_writes_a_line_when_one_is_due(tmp_path: Path) -> None:
    path = tmp_path / "new" / "er" / "health.jsonl"
    monitor, calls = train_for(10, every=4, path=path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8]
    assert len(calls) == 2  # a batch is fetched only when a diagnosis is due
    assert rows[1]["layers"] == monitor.latest.to_dict()["layers"]
    train_for(5, every=5, path=path)
    assert len(path.read_text().splitlines()) == 3  # earlier rows are kept


def test_monitor_takes_tensors_steps_and_options() -> None:
    monitor = Monitor(sick_network(), every=100, path=None, layers="3")
    assert monitor.step(torch.randn(20, 6), step=99) is None
    report = monitor.step(torch.randn(20, 6), step=100)
    assert [layer.name for layer in report] == ["3"]
    monitor.close()
    monitor.close()


def test_monitor_mirrors_to_a_real_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor, _ = train_for(6, every=3, path=None, tensorboard=tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    values = events.Scalars("3/dormant_fraction")
    assert [event.step for event in values] == [3, 6]
    assert values[-1].value == pytest.approx(monitor.latest["3"].dormant_fraction)


def test_a_failing_mirror_does_not_stop_training(tmp_path: Path) -> None:
    class Broken:
        def add_scalar(self, *_: object) -> None:
            raise OSError("disk full")

    path = tmp_path / "health.jsonl"
    with pytest.warns(UserWarning, match="TensorBoard is off from step 2: disk full"):
        train_for(4, every=2, path=path, tensorboard=Broken())
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("closing_fails", [False, True])
def test_a_tensorboard_that_failed_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closing_fails: bool
) -> None:
    pytest.importorskip("tensorboard")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monitor = Monitor(sick_network(), every=1, path=None, tensorboard=tmp_path)
    writer = monitor._writer
    close = writer.close
    monkeypatch.setattr(writer, "add_scalar", fail)
    if closing_fails:
        monkeypatch.setattr(writer, "close", lambda: (close(), fail()))
    with pytest.warns(UserWarning, match="TensorBoard") as caught:
        monitor.step(torch.randn(20, 6))
    assert writer.all_writers is None  # closed
    messages = [str(warning.message) for warning in caught]
    assert messages[-1] == "TensorBoard is off from step 1: disk full"
    assert caught[-1].filename == __file__  # of who trains
    assert messages[:-1] == ["TensorBoard's file may be incomplete: disk full"] * closing_fails
    assert monitor.step(torch.randn(20, 6)) is not None


def test_a_tensorboard_that_cannot_be_closed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")

    def fail() -> None:
        raise OSError("disk full")

    monitor = Monitor(sick_network(), every=1, path=None, tensorboard=tmp_path)
    writer = monitor._writer
    assert writer is not None
    close = writer.close
    monkeypatch.setattr(writer, "close", lambda: (close(), fail()))
    with pytest.warns(UserWarning, match="file may be incomplete: disk full") as caught:
        monitor.close()
    assert caught[0].filename == __file__  # of who closes the monitor
    monitor.close()


def test_a_monitor_that_cannot_open_its_file_closes_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writers: list[Any] = []

    class Writer(tensorboard.SummaryWriter):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            writers.append(self)

    monkeypatch.setattr(tensorboard, "SummaryWriter", Writer)
    with pytest.raises(IsADirectoryError):
        Monitor(sick_network(), path=tmp_path, tensorboard=tmp_path / "tb")
    assert [writer.all_writers for writer in writers] == [None]


def test_a_writer_of_the_caller_is_left_open() -> None:
    class Writer:
        closed = False

        def add_scalar(self, *_: object) -> None:
            raise OSError("disk full")

        def close(self) -> None:
            self.closed = True

    writer = Writer()
    with pytest.warns(UserWarning, match="TensorBoard is off from step 1: disk full"):
        train_for(1, every=1, path=None, tensorboard=writer)
    assert not writer.closed


def test_monitor_refuses_bad_arguments() -> None:
    with pytest.raises(
        ValueError, match="every must be a number of steps, an integer from 1 up, got 0"
    ):
        Monitor(sick_network(), every=0, path=None)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got int"):
        Monitor(3, path=None)
    with pytest.raises(TypeError, match="tensorboard must be a folder or a SummaryWriter, got int"):
        Monitor(sick_network(), path=None, tensorboard=3)
