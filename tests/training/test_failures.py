"""Interrupts, full disks, divergence and dead workers: what a run says and what it leaves."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hadamard.core import checkpoint, discover
from hadamard.core.run import Run
from hadamard.training import start
from tests.support.commands import Command, checkpoint_names, small

ALGORITHMS = discover.names("hadamard.algos")


def test_a_second_interrupt_does_not_wait(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, one_step = tmp_path / "run", start.Trainer.one_step
    interrupts = 1

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        if self.step == 150:
            for _ in range(interrupts):
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", stepping)
        result = command(*small("dqn", path))
        assert (result.code, result.err) == (75, "")
        assert checkpoint_names(path) == ["step-000000000100", "step-000000000150"]
        interrupts = 2
        result = command(*small("dqn", tmp_path / "other"))
        assert result.code == 130
        assert result.err == "hadamard: interrupted at once, without saving\n"
        assert checkpoint_names(tmp_path / "other") == ["step-000000000100"]
    assert signal.getsignal(signal.SIGINT) is before
    assert command("train", "--resume", path).code == 0
    assert command("train", "--resume", tmp_path / "other").code == 0


class Full:
    """A disk on which nothing more can be written after a number of files reached it."""

    def __init__(self, room: int) -> None:
        self.room, self.sync = room, os.fsync

    def __call__(self, descriptor: int) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.sync(descriptor)


@pytest.mark.parametrize("room", [0, 12, 25, 27, 29])
def test_a_full_disk_ends_the_run_and_not_its_checkpoints(
    room: int, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "run", tmp_path / "whole"
    full = Full(room)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        result = command(*small("dqn", path))
    assert full.room < 0
    assert result.code == 1
    assert result.err.startswith("hadamard: no space left on the disk")
    assert result.err.count("\n") == 1
    if room == 0:  # not even the settings: the same command starts the run
        assert command(*small("dqn", path)).code == 0
        return
    for name in checkpoint_names(path):
        checkpoint.read(path / "checkpoints" / name)
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    assert command(*small("dqn", whole)).code == 0
    for stream in ("episodes", "train", "health", "kde"):
        assert list(Run.open(path).rows(stream)) == list(Run.open(whole).rows(stream))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_run_goes_on_when_there_is_space_again(command: Command, tiny_disk: Path) -> None:
    path, filler = tiny_disk / "run", tiny_disk / "filler"
    filler.write_bytes(bytes(900_000))
    # Each checkpoint takes a few tens of kilobytes.
    result = command(*small("dqn", path, {"--net.width": 64}))
    assert result.code == 1
    assert "no space left on the disk" in result.err
    assert "hadamard train --resume" in result.err
    filler.unlink()
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    steps = [row["step"] for row in Run.open(path).rows("train")]
    assert steps == list(range(50, 401, 50))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("health", [0, 50, 100])
def test_a_diverged_run_keeps_its_last_good_checkpoint(
    algorithm: str, health: int, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, one_step = tmp_path / "run", start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        if self.step >= 260:
            with torch.no_grad():
                next(self.agent.network.parameters()).fill_(torch.nan)

    monkeypatch.setattr(start.Trainer, "one_step", stepping)
    result = command(*small(algorithm, path, {"--train.health-every": health}))
    good = checkpoint_names(path)
    assert len(good) == 2
    assert result.code == 1
    assert result.err.startswith(f"hadamard: {algorithm} diverged: ")
    assert result.err.count("\n") == 1
    assert f"the last good checkpoint is {path / 'checkpoints' / good[-1]}" in result.err
    assert "--algo.learning-rate" in result.err
    for name in good:
        step, state = checkpoint.read(path / "checkpoints" / name)
        assert step < 300
        assert all(weight.isfinite().all() for weight in state["agent.network"].values())
    assert not (path / "DONE").exists()


def test_a_loss_that_is_not_finite_stops_the_run(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run"
    more = {"--algo.learning-rate": 1e30, "--algo.learning-starts": 150}
    result = command(*small("dqn", path, more))
    assert result.code == 1
    assert "dqn diverged" in result.err
    assert checkpoint_names(path) == ["step-000000000100"]
    assert "step-000000000100" in result.err
    result = command(*small("dqn", tmp_path / "other", {"--algo.learning-rate": 1e30}))
    assert result.code == 1
    assert "no checkpoint was written" in result.err


@pytest.mark.parametrize(
    ("step", "worker", "problem"),
    [
        (240, "worker 1 (of 2; environments 2 to 3 of probe/both)", "died with exit code -9"),
        # The first worker is waited for first, so how fast the other one is does not matter.
        (244, "worker 0 (of 2; environments 0 to 1 of probe/both)", "did not answer within 0.2 s"),
    ],
)
def test_a_dead_or_hung_environment_worker_ends_the_run_clearly(
    step: int,
    worker: str,
    problem: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, one_step = tmp_path / "run", start.Trainer.one_step
    workers: list[int] = []

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        if self.step == 240:
            processes = self.envs.envs._processes
            workers.extend(process.pid for process in processes)
            if problem.startswith("died"):
                processes[1].kill()
                processes[1].join()
            else:
                os.kill(workers[0], signal.SIGSTOP)
                self.envs.envs.timeout = 0.2
        yield from one_step(self, *stopping)

    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", stepping)
        result = command(*small("pqn", path, {"--train.env-workers": 2}))
    assert len(workers) == 2
    assert result.code == 1
    newest = path / "checkpoints" / checkpoint_names(path)[-1]
    assert result.err == (
        f"hadamard: at step {step}, {worker} {problem}; the last good checkpoint is {newest}\n"
    )
    for process in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert checkpoint_names(path)
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    assert [row["step"] for row in Run.open(path).rows("train")] == [
        52, 100, 152, 200, 252, 300, 352, 400
    ]  # fmt: skip
